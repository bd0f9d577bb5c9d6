// What `ringside bench COLLECTIVE` measures, and the backends that it knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/data_type.hpp"

namespace ringside::cli {

// How the ranks of a backend run.
enum class RanksRunAs {
  processes,  // that our launcher starts
  threads,    // of the process of rank 0
  mpirun,     // processes that mpirun starts: MPI chooses its transport when mpirun starts
};

// The machine's limit that a backend is compared with (collectives/backends/machine_limits.hpp).
enum class Limit { tcp, memory, device };

struct BenchBackend {
  std::string name;
  RanksRunAs ranks_run_as = RanksRunAs::processes;
  Limit limit = Limit::tcp;
  bool available = true;     // in this build
  std::string package = {};  // of a library, what to install; empty: our own backend
  std::vector<std::string> mpirun_options = {};
  std::vector<std::pair<const char*, const char*>> environment = {};  // names and values
  std::string plugin = {};  // the file of a plugin (collectives/backends/plugin.hpp)

  // Uses GPU memory. bench looks for a GPU only if the backend is named.
  bool device() const { return limit == Limit::device; }
};

// All backends that bench knows, in the order of the help; plugins last.
const std::vector<BenchBackend>& bench_backends();

// Adds a plugin, whose name is that of its file without .so. Returns the name. Throws Error if the
// file cannot be loaded or a backend has that name. No reference into bench_backends() may exist.
std::string add_plugin(const std::string& file);

std::vector<std::string> available_backends();  // the names of those that this build has

// The backend of this name. Throws Error, with a list of the backends of this build, if there is
// none.
const BenchBackend& bench_backend_named(std::string_view name);

struct BenchOptions {
  collectives::Collective collective{};
  // Of our own backends, one row for each. auto: the algorithm that a ProcessGroup would select.
  std::vector<std::string> algorithms{"auto"};
  collectives::DataType type{};
  collectives::ReduceOp op{};
  std::vector<int> ranks;
  std::vector<std::uint64_t>
      bytes;  // the whole buffer: reduce_scatter's input, all_gather's output
  std::vector<std::string> backends{"tcp", "shm", "threads"};
  int queued = 0;  // calls on a GPU that queue up, timed by its events; 0: each is waited for
  collectives::cuda::Queueing queueing = {};  // of these
  bool both_places = false;                   // measure each size out of place and in place
  bool in_place = false;  // measure each size in place; else where out of place does not fit
  bool announces = true;  // false: our own backends send messages only
  int warmup = 5;
  bool limits = true;         // measure the machine's limits too
  double quantile = 0.5;      // the quantile of the samples that becomes the figure
  std::optional<int> repeat;  // samples of each figure; none: as fit into `seconds`, at least 7
  double seconds = 0.5;
  int passes = 1;  // how often everything is measured, from the first row to the last
};

// The type or the operation of this name. Throw Error with a list of the names that exist.
collectives::DataType type_named(std::string_view name);
collectives::ReduceOp op_named(std::string_view name);

// Whether ranks on this machine have one buffer each of `bytes`, because the user asks for it, or
// because an input and an output do not fit in `available` bytes of memory.
bool measures_in_place(const BenchOptions& options, int ranks, std::uint64_t bytes,
                       std::optional<std::uint64_t> available = available_memory());

// Throws Error, with the needed and the available memory, if the buffers of the largest measurement
// do not fit in memory.
void check_memory(const BenchOptions& options,
                  std::optional<std::uint64_t> available = available_memory());

}  // namespace ringside::cli
