#include "bench/bench_options.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <unistd.h>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/text/words.hpp"
#include "bench/backends/library_backends.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/backends/nccl.hpp"
#include "collectives/backends/plugin.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::cli {
namespace {

using collectives::DataType;
using collectives::ReduceOp;

// The input, the output, and as much again for temporary buffers. In place our own backends need
// none.
std::uint64_t buffers_of_rank(const BenchOptions& options, bool in_place) {
  if (!in_place) return 3;
  const auto is_library = [](const std::string& name) {
    return !bench_backend_named(name).package.empty();
  };
  return std::ranges::any_of(options.backends, is_library) ? 2 : 1;
}

bool in_path(const std::string& program) {
  std::istringstream folders(environment("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

// The value of an enumeration by its name. The names are found by calling name_of().
template <class Enum>
Enum named(std::string_view name, const char* what) {
  std::vector<std::string> names;
  for (int i = 0; i < 16; ++i) {
    const std::string_view candidate = name_of(static_cast<Enum>(i));
    if (candidate.starts_with("unknown")) break;
    if (candidate == name) return static_cast<Enum>(i);
    names.emplace_back(candidate);
  }
  fail("there is no {} named '{}'{}; there are {}", what, name, did_you_mean(name, names),
       fmt::join(names, ", "));
}

}  // namespace

static std::vector<BenchBackend>& known_backends() {
  const bool mpi = mpi_is_here() && in_path("mpirun");
  const bool cuda = collectives::cuda::built_with_cuda();
  const char* const mpi_packages = "libopenmpi-dev and openmpi-bin";
  const auto nccl = [](const char* name) {
    return BenchBackend{.name = name,
                        .limit = Limit::device,
                        .available = collectives::nccl_is_here(),
                        .package = "libnccl-dev from NVIDIA's repository"};
  };
  static std::vector<BenchBackend> backends = {
      {.name = "tcp"},
      {.name = "shm", .limit = Limit::memory},
      {.name = "threads", .ranks_run_as = RanksRunAs::threads, .limit = Limit::memory},
      {.name = "gloo", .available = gloo_is_here(), .package = "libgloo-dev"},
      {.name = "mpi",
       .ranks_run_as = RanksRunAs::mpirun,
       .limit = Limit::memory,
       .available = mpi,
       .package = mpi_packages},
      {.name = "mpi_heap",
       .ranks_run_as = RanksRunAs::mpirun,
       .limit = Limit::memory,
       .available = mpi,
       .package = mpi_packages,
       .environment = {{"MALLOC_MMAP_MAX_", "0"},
                       {"MALLOC_TRIM_THRESHOLD_", "100000000000"},
                       {"MALLOC_TOP_PAD_", "300000000"}}},
      {.name = "mpi_tcp",
       .ranks_run_as = RanksRunAs::mpirun,
       .available = mpi,
       .package = mpi_packages,
       .mpirun_options = {"--mca", "pml", "ob1", "--mca", "btl", "self,tcp"}},
      {.name = "cuda_kernels",
       .ranks_run_as = RanksRunAs::threads,
       .limit = Limit::device,
       .available = cuda},
      {.name = "cuda_ipc", .limit = Limit::device, .available = cuda},
      nccl("nccl"),
      nccl("nccl_registered"),
      nccl("nccl_symmetric"),
  };
  return backends;
}

const std::vector<BenchBackend>& bench_backends() {
  return known_backends();
}

std::string add_plugin(const std::string& file) {
  collectives::load_plugin(file);
  const std::string name = std::filesystem::path(file).stem();
  for (const BenchBackend& backend : bench_backends())
    require(backend.name != name, "there is a backend named {} already: rename {}", name, file);
  known_backends().push_back({.name = name, .package = "plugin", .plugin = file});
  return name;
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const auto& backend : bench_backends())
    if (backend.available) names.push_back(backend.name);
  return names;
}

const BenchBackend& bench_backend_named(std::string_view name) {
  const std::vector<std::string> available = available_backends();
  const auto& all = bench_backends();
  const auto found = std::ranges::find(all, name, &BenchBackend::name);
  require(found != all.end(), "there is no backend named '{}'{}; this build has {}", name,
          did_you_mean(name, available), fmt::join(available, ", "));
  if (found->device())
    if (const auto missing = collectives::cuda::what_is_missing())
      fail("{} cannot be measured: {}", name, *missing);
  require(found->available,
          "{} is not in this build: install {}, then configure and build again; this build has {}",
          name, found->package, fmt::join(available, ", "));
  return *found;
}

DataType type_named(std::string_view name) {
  return named<DataType>(name, "type");
}
ReduceOp op_named(std::string_view name) {
  return named<ReduceOp>(name, "operation");
}

bool measures_in_place(const BenchOptions& options, int ranks, std::uint64_t bytes,
                       std::optional<std::uint64_t> available) {
  const std::uint64_t needed =
      static_cast<std::uint64_t>(ranks) * buffers_of_rank(options, false) * bytes;
  return options.in_place || (!options.both_places && needed > available.value_or(needed));
}

void check_memory(const BenchOptions& options, std::optional<std::uint64_t> available) {
  const int ranks = *std::ranges::max_element(options.ranks);
  const std::uint64_t bytes = *std::ranges::max_element(options.bytes);
  const std::uint64_t buffers =
      buffers_of_rank(options, measures_in_place(options, ranks, bytes, available));
  const std::uint64_t needed = static_cast<std::uint64_t>(ranks) * buffers * bytes;
  require(needed <= available.value_or(needed),
          "{} ranks with {} of {} each need {:.1f} GB of memory, and {:.1f} GB are available: "
          "measure less with --bytes or -n",
          ranks, counted(static_cast<std::int64_t>(buffers), "buffer"), bytes_to_text(bytes),
          static_cast<double>(needed) * 1e-9, static_cast<double>(*available) * 1e-9);
}

}  // namespace ringside::cli
