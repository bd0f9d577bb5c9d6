#include "cli/bench/contender.hpp"

#include <algorithm>
#include <barrier>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/bench/data.hpp"
#include "cli/bench/limits.hpp"
#include "cli/bench/process_layout.hpp"
#include "collectives/backends/library_backends.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {
namespace {

using collectives::Backend;
using collectives::Call;
using collectives::Collective;
using collectives::RankInfo;

// The same buffers in memory of this thread's GPU.
class OnDevice {
 public:
  explicit OnDevice(const BenchData& data)
      : data_(data), input_(data.input_bytes()), output_(data.output_bytes()) {
    input_.copy_from(data.input(), data.input_bytes());
    output_.copy_from(data.output(), data.output_bytes());
  }
  const void* input() const { return input_.data(); }
  void* output() const { return output_.data(); }
  void bring_back() { output_.copy_to(data_.output(), data_.output_bytes()); }

 private:
  const BenchData& data_;
  collectives::cuda::DeviceBuffer input_, output_;
};

// One rank's part of a block.
void measure_rank(Backend& backend, const Block& block, bool check, RankRecord& record,
                  bool device = false) {
  Call buffers = block.call;
  if (!check) buffers.collective = Collective::all_reduce;  // a limit: it only moves bytes
  const BenchData data(buffers, backend.rank(), backend.size());
  std::optional<OnDevice> on_device;
  if (device) on_device.emplace(data);
  const void* const input = device ? on_device->input() : data.input();
  void* const output = device ? on_device->output() : data.output();
  const auto call = [&] { backend.run(block.call, input, output); };
  for (int i = 0; i < block.warmup; ++i) call();
  for (int sample = 0; sample < block.samples; ++sample) {
    const auto start = Clock::now();
    for (int i = 0; i < block.batch; ++i) call();
    record.seconds.push_back(seconds_since(start) / block.batch);
  }
  if (device) on_device->bring_back();
  if (check) record.wrong = std::max(record.wrong, data.wrong());
}

// All ranks as threads of this process. make(rank) is called by the rank's own thread.
void measure_threads(const std::function<std::unique_ptr<Backend>(int)>& make, const Block& block,
                     bool check, std::vector<RankRecord>& records, bool device = false) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto run_rank = [&](int rank) {
    const auto backend = make(rank);
    try {
      measure_rank(*backend, block, check, records[static_cast<std::size_t>(rank)], device);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      backend->abort(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < static_cast<int>(records.size()); ++rank)
    threads.emplace_back(run_rank, rank);
  run_rank(0);
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// Our collectives over that transport, behind the link that is asked for.
std::unique_ptr<Backend> ours_over(collectives::Connections connections) {
  const auto options = collectives::group_options_from_environment();
  return make_schedule_backend(behind_link(std::move(connections), options.link), options.executor);
}

void measure_with_threads(Lane& lane) {
  lane.measure = [](const Block& block, std::vector<RankRecord>& records) {
    const auto world = collectives::make_threads_world(static_cast<int>(records.size()));
    const auto make = [&](int rank) { return ours_over(connect_threads(world, rank)); };
    measure_threads(make, block, true, records);
  };
}

// The ranks share a GPU; `bare`: its limit instead.
void measure_with_one_gpu(Lane& lane, bool bare) {
  using namespace collectives::cuda;
  lane.measure = [bare](const Block& block, std::vector<RankRecord>& records) {
    const auto world = bare ? make_bare_gpu_world(static_cast<int>(records.size()))
                            : make_one_gpu_world(static_cast<int>(records.size()));
    const auto make = [&](int rank) { return make_one_gpu_backend(world, rank); };
    measure_threads(make, block, !bare, records, true);
  };
}

void measure_bare_copies(Lane& lane) {
  lane.measure = [](const Block& block, std::vector<RankRecord>& records) {
    const int size = static_cast<int>(records.size());
    std::barrier everybody(size);
    const auto make = [&](int rank) { return make_bare_copy(rank, size, everybody); };
    measure_threads(make, block, false, records);
  };
}

void measure_with(Lane& lane, std::shared_ptr<Backend> backend) {
  const bool check = lane.backend != nullptr, device = check && lane.backend->device;
  lane.measure = [backend, check, device](const Block& block, std::vector<RankRecord>& records) {
    measure_rank(*backend, block, check, records[0], device);
  };
}

std::unique_ptr<Backend> connect(const std::string& name, const RankInfo& meeting) {
  if (name == "tcp") return ours_over(collectives::connect_tcp(meeting));
  if (name == "shm") return ours_over(collectives::connect_shm(meeting));
  if (name == "cuda_ipc") return collectives::cuda::make_cuda_ipc_backend(meeting);
  if (name == "nccl") return collectives::make_nccl_backend(meeting);
  if (name == "gloo") return collectives::make_gloo_backend(meeting);
  return collectives::make_mpi_backend();
}

}  // namespace

std::vector<Lane> lanes_of(const BenchPlan& plan, int ranks) {
  std::vector<Lane> lanes;
  for (const auto& name : plan.backends) {
    const BenchBackend& backend = bench_backend_named(name);
    Lane lane{.name = name,
              .algorithm = "",
              .backend = &backend,
              .limit = backend.limit,
              .set = set_of(backend, plan.backends),
              .measure = {}};
    const bool ours = backend.home != Home::mpirun && name != "gloo" && name != "nccl";
    if (!ours) lanes.push_back(lane);
    const bool has_choice =
        !backend.device || (name == "cuda_kernels" && plan.collective == Collective::all_reduce);
    for (const auto& algorithm : has_choice ? plan.algorithms : std::vector<std::string>{"auto"}) {
      if (!ours) break;
      lane.algorithm = algorithm;
      lanes.push_back(lane);
    }
  }
  const bool nothing_like_it = plan.collective == Collective::barrier ||
                               plan.collective == Collective::gather ||
                               plan.collective == Collective::scatter;
  if (ranks == 1 || nothing_like_it || !plan.limits) return lanes;
  for (const auto& [limit, name] :
       {std::pair(Limit::tcp, "bare ring"), std::pair(Limit::memory, "bare copy"),
        std::pair(Limit::device, "bare GPU")}) {
    if (limit == Limit::device && plan.collective != Collective::all_reduce)
      continue;  // its kernel has the shape of no other
    const bool wanted = std::any_of(lanes.begin(), lanes.end(), [limit = limit](const Lane& lane) {
      return lane.limit == limit;
    });
    if (wanted) lanes.push_back({.name = name, .algorithm = "", .limit = limit, .measure = {}});
  }
  return lanes;
}

void open_lane(Lane& lane, const RankInfo& meeting) {
  const bool in_one_process =
      lane.backend ? lane.backend->home == Home::threads : lane.limit != Limit::tcp;
  lane.takes_part = meeting.rank == 0 || !in_one_process;
  if (in_one_process && lane.takes_part && lane.limit == Limit::device)
    return measure_with_one_gpu(lane, !lane.backend);
  if (in_one_process && lane.takes_part)
    return lane.backend ? measure_with_threads(lane) : measure_bare_copies(lane);
  if (!in_one_process)
    measure_with(lane, lane.backend ? connect(lane.name, meeting) : make_bare_ring(meeting));
}

}  // namespace ringside::cli
