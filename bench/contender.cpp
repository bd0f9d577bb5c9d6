#include "bench/contender.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>

#include "bench/backends/library_backends.hpp"
#include "bench/backends/machine_limits.hpp"
#include "bench/data.hpp"
#include "bench/own_core.hpp"
#include "bench/process_layout.hpp"
#include "collectives/backends/nccl.hpp"
#include "collectives/backends/plugin.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"
#include "collectives/ranks/run_threads.hpp"

namespace ringside::cli {
namespace {

using collectives::Backend;
using collectives::Call;
using collectives::Collective;
using collectives::RankInfo;

// Copies of the buffers in the memory of this thread's GPU, as the backend allocates it.
class OnDevice {
 public:
  OnDevice(const BenchData& data, collectives::cuda::DeviceBackend& backend)
      : data_(data),
        input_(backend.allocate(data.input_bytes())),
        memory_(backend.allocate(data.memory_bytes())) {
    if (!data.in_place()) input_.copy_from(data.input(), data.input_bytes());
    renew();
  }
  const void* input() const { return data_.in_place() ? at(data_.input_at()) : input_.data(); }
  void* output() const { return at(data_.output_at()); }
  void renew() { memory_.copy_from(data_.memory(), data_.memory_bytes()); }
  void bring_back() { memory_.copy_to(data_.memory(), data_.memory_bytes()); }

 private:
  std::byte* at(std::size_t byte) const { return static_cast<std::byte*>(memory_.data()) + byte; }

  const BenchData& data_;
  collectives::cuda::DeviceBuffer input_, memory_;
};

// Runs one rank's part of a block. The results of a limit are meaningless.
void measure_rank(const Contender& contender, Backend& backend, const Block& block,
                  RankRecord& record) {
  const bool check = contender.backend != nullptr, device = contender.limit == Limit::device;
  Call buffers = block.call;
  if (!check) buffers.collective = Collective::all_reduce;  // a limit moves bytes like this
  const bool in_place = block.in_place && (check || !device);
  BenchData data(buffers, backend.rank(), backend.size(), in_place);
  std::optional<OnDevice> on_device;
  auto* const queue = dynamic_cast<collectives::cuda::DeviceBackend*>(&backend);
  if (device) on_device.emplace(data, *queue);
  const void* const input = device ? on_device->input() : data.input();
  void* const output = device ? on_device->output() : data.output();
  const auto call = [&] { backend.run(block.call, input, output); };
  const bool queued = queue && block.queued;
  const auto seconds_of_queued = [&] {
    return seconds_of_queued_call(*queue, block.call, input, output, block.batch,
                                  check ? block.queueing : collectives::cuda::Queueing::alone);
  };
  for (int i = 0; i < block.warmup; ++i) {
    if (i == 0 && queue && check)
      record.choice = queue->choice_of([&] { queued ? void(seconds_of_queued()) : call(); });
    else
      call();
  }
  for (int sample = 0; sample < block.samples; ++sample) {
    if (queued) {
      record.seconds.push_back(seconds_of_queued());
      continue;
    }
    const auto start = Clock::now();
    for (int i = 0; i < block.batch; ++i) call();
    record.seconds.push_back(seconds_since(start) / block.batch);
  }
  if (!check) return;
  if (in_place) {
    data.renew();
    if (device) on_device->renew();
    call();
  }
  if (device) on_device->bring_back();
  record.wrong = std::max(record.wrong, data.wrong());
  require(record.wrong == 0 || contender.backend->plugin.empty(),
          "the plugin {} is wrong: after an {} of {} elements, {} on rank {}", contender.name,
          name_of(block.call.collective), block.call.count, data.first_wrong(), backend.rank());
}

// How many of a host's ranks poll memory while they wait. Those that wait for sockets sleep, and
// the kernel chooses a core each time it wakes one.
int polling_ranks(const Contender& contender, int ranks) {
  return contender.limit == Limit::memory ? ranks : 0;
}

using MakeBackend = std::function<std::unique_ptr<Backend>(int rank)>;

// Runs all ranks as threads of this process. Each thread calls make(rank) for its own rank.
void measure_threads(const Contender& contender, const MakeBackend& make, const Block& block,
                     std::vector<RankRecord>& records) {
  std::mutex mutex;
  std::exception_ptr first;
  collectives::run_on_threads(static_cast<int>(records.size()), [&](int rank) {
    std::unique_ptr<Backend> backend;
    try {
      backend = make(rank);
      const OwnCore core(rank, polling_ranks(contender, static_cast<int>(records.size())));
      measure_rank(contender, *backend, block, records[static_cast<std::size_t>(rank)]);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      if (backend) backend->abort(error.what());
    }
  });
  if (first) std::rethrow_exception(first);
}

// Our collectives over that transport, behind the emulated link if there is one.
std::unique_ptr<Backend> ours_over(collectives::Connections connections, bool announces) {
  auto options = collectives::group_options_from_environment();
  options.executor.announces = announces;
  return make_schedule_backend(behind_link(std::move(connections), options.link), options.executor);
}

// What makes the backend of each rank where all ranks are threads of this process. They meet in a
// new world, which the function holds.
MakeBackend world_of_threads(const Contender& contender, int size) {
  if (contender.limit == Limit::device) {
    const bool bare = contender.backend == nullptr;
    const auto world = collectives::cuda::make_one_gpu_world(size, Seconds(120), bare);
    return [world](int rank) { return collectives::cuda::make_one_gpu_backend(world, rank); };
  }
  if (contender.backend) {
    const auto world = collectives::make_threads_world(size);
    return [world, announces = contender.announces](int rank) {
      return ours_over(connect_threads(world, rank), announces);
    };
  }
  const auto barrier = std::make_shared<PollingBarrier>(size);
  return [barrier, size](int rank) { return make_bare_copy(rank, size, *barrier); };
}

std::unique_ptr<Backend> connect(const Contender& contender, const RankInfo& meeting) {
  const std::string& name = contender.name;
  if (name == "tcp") return ours_over(collectives::connect_tcp(meeting), contender.announces);
  if (name == "shm") return ours_over(collectives::connect_shm(meeting), contender.announces);
  if (name == "cuda_ipc")
    return collectives::cuda::make_cuda_ipc_backend(meeting, {.all_reduce = contender.algorithm});
  if (const std::string& plugin = bench_backend_named(name).plugin; !plugin.empty())
    return collectives::load_plugin(plugin)(meeting);
  if (name.starts_with("nccl")) {
    const auto memory = name == "nccl"              ? collectives::NcclMemory::plain
                        : name == "nccl_registered" ? collectives::NcclMemory::registered
                                                    : collectives::NcclMemory::symmetric;
    return collectives::make_nccl_backend(
        meeting, {.memory = memory, .blocking = true, .tells_choice = true});
  }
  if (name == "gloo") return make_gloo_backend(meeting);
  return make_mpi_backend();
}

}  // namespace

std::vector<Contender> contenders_of(const BenchOptions& options, int ranks) {
  std::vector<Contender> contenders;
  for (const auto& name : options.backends) {
    const BenchBackend& backend = bench_backend_named(name);
    // cuda_ipc has algorithms where each rank has a GPU.
    const bool is_kernels = name == "cuda_kernels" ||
                            (name == "cuda_ipc" && collectives::cuda::device_count() >= ranks);
    const bool has_algorithms =
        !backend.device() || (is_kernels && options.collective == Collective::all_reduce);
    std::vector<std::string> algorithms = options.algorithms;
    if (!has_algorithms) algorithms = {"auto"};
    if (!backend.package.empty()) algorithms = {""};  // a library selects them itself
    for (const std::string& algorithm : algorithms)
      contenders.push_back({.name = name,
                            .algorithm = algorithm,
                            .backend = &backend,
                            .limit = backend.limit,
                            .set = set_of(backend, options.backends),
                            .announces = options.announces,
                            .measure = {}});
  }
  const bool has_no_limit = options.collective == Collective::barrier ||
                            options.collective == Collective::gather ||
                            options.collective == Collective::scatter;
  if (ranks == 1 || has_no_limit || !options.limits) return contenders;
  for (const auto& [limit, name] :
       {std::pair(Limit::tcp, "bare ring"), std::pair(Limit::memory, "bare copy"),
        std::pair(Limit::device, "bare GPU")}) {
    if (limit == Limit::device && options.collective != Collective::all_reduce)
      continue;  // its kernel moves bytes like an all-reduce only
    const bool wanted = std::ranges::any_of(
        contenders,
        [limit = limit](const Contender& contender) { return contender.limit == limit; });
    if (wanted)
      contenders.push_back({.name = name, .algorithm = "", .limit = limit, .measure = {}});
  }
  return contenders;
}

void open_contender(Contender& contender, const RankInfo& meeting) {
  const bool in_one_process = contender.backend
                                  ? contender.backend->ranks_run_as == RanksRunAs::threads
                                  : contender.limit != Limit::tcp;
  if (in_one_process) {
    if (meeting.rank != 0) return;
    contender.measure = [contender](const Block& block, std::vector<RankRecord>& records) {
      const auto make = world_of_threads(contender, static_cast<int>(records.size()));
      measure_threads(contender, make, block, records);
    };
    return;
  }
  const std::shared_ptr<Backend> backend =
      contender.backend ? connect(contender, meeting) : make_bare_ring(meeting);
  contender.measure = [=, rank = meeting.local_rank,
                       ranks = polling_ranks(contender, meeting.local_size)](
                          const Block& block, std::vector<RankRecord>& records) {
    const OwnCore core(rank, ranks);
    measure_rank(contender, *backend, block, records[0]);
  };
}

}  // namespace ringside::cli
