#include "collectives/process_group.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/environment.hpp"
#include "base/start_thread.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/call_queue.hpp"
#include "collectives/group_options.hpp"
#include "collectives/selection/calibration.hpp"
#include "collectives/selection/link_costs.hpp"

namespace ringside::collectives {
namespace {

Call make_call(Collective collective, DataType type, std::uint64_t count,
               std::string_view label = {}) {
  return {.collective = collective, .type = type, .count = count, .label = label};
}

Call make_reduction(Collective collective, DataType type, std::uint64_t count, ReduceOp op,
                    std::string_view label) {
  Call call = make_call(collective, type, count, label);
  call.reduce = op;
  return call;
}

Call make_rooted(Call call, int root) {
  call.root = root;
  return call;
}

// With an emulated link, algorithms are chosen by what messages cost over it.
AlgorithmSelection selection_behind(AlgorithmSelection algorithms, const std::optional<Link>& link,
                                    std::string_view transport, int hosts) {
  if (!link || algorithms.costs()) return algorithms;
  MachineCosts costs = costs_behind(*link, costs_here(transport));
  costs.common.cores *= std::max(1, hosts);
  algorithms.set_costs(costs);
  return algorithms;
}

ProcessGroup make_group(Connections bare, const GroupOptions& options, int hosts = 1) {
  Connections connections = behind_link(std::move(bare), options.link);
  AlgorithmSelection algorithms =
      selection_behind(options.algorithms, options.link, connections.transport->name(), hosts);
  algorithms = agree_on_costs(connections, options.executor, std::move(algorithms), hosts);
  return ProcessGroup(make_schedule_backend(std::move(connections), options.executor),
                      std::move(algorithms));
}

// Checks the arguments of a call and sets its algorithm.
Call complete(Call call, const Backend& backend, const AlgorithmSelection& algorithms) {
  const int size = backend.size();
  require(call.root >= 0 && call.root < size,
          "{}: the root must be one of the ranks 0 to {}, not {}", name_of(call.collective),
          size - 1, call.root);
  require(call.reduce != ReduceOp::avg || is_floating(call.type),
          "{}: avg is not defined for {}; use sum and divide with the rounding that you need",
          name_of(call.collective), name_of(call.type));
  if (call.collective == Collective::point_to_point) return call;
  const Algorithm& algorithm = algorithms.choose(call.collective, call.count, call.type, size);
  call.algorithm = static_cast<std::uint8_t>(&algorithm - all_algorithms().data());
  return call;
}

}  // namespace

struct ProcessGroup::State {
  State(std::unique_ptr<Backend> backend, AlgorithmSelection selection)
      : calls(std::move(backend)), algorithms(std::move(selection)) {}

  void run(const Call& call, const void* input, void* output) {
    calls.run(complete(call, calls.backend(), algorithms), input, output);
  }
  Work start(const Call& call, const void* input, void* output) {
    return calls.start(complete(call, calls.backend(), algorithms), input, output);
  }
  Call between(int from, int to, std::size_t count, DataType type, std::string_view label) const;

  CallQueue calls;
  AlgorithmSelection algorithms;
  std::string name;  // of a sub-group: "split2.color0"
  int splits = 0;
  MakeBackend make_device_backend;  // empty without a device
  IsDeviceMemory is_device_memory;
};

ProcessGroup::ProcessGroup(std::unique_ptr<Backend> backend)
    : ProcessGroup(std::move(backend), AlgorithmSelection()) {}

ProcessGroup::ProcessGroup(std::unique_ptr<Backend> backend, AlgorithmSelection algorithms)
    : state_(std::make_unique<State>(std::move(backend), std::move(algorithms))) {}

ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() = default;

ProcessGroup ProcessGroup::from_environment() {
  return over(environment("RINGSIDE_BACKEND").value_or("auto"), rank_info_from_environment());
}

ProcessGroup ProcessGroup::over(std::string_view backend, const RankInfo& rank_info) {
  return over(backend, rank_info, group_options_from_environment());
}

ProcessGroup ProcessGroup::over(std::string_view backend, const RankInfo& rank_info,
                                const GroupOptions& options) {
  require(backend == "auto" || backend == "tcp" || backend == "shm",
          "there is no backend '{}' to connect ranks with: take auto, tcp or shm", backend);
  if (backend == "tcp") return over_tcp(rank_info, options);
  if (backend == "shm") return over_shm(rank_info, options);
  return make_group(connect_automatic(rank_info), options,
                    rank_info.size / std::max(1, rank_info.local_size));
}

ProcessGroup ProcessGroup::over_tcp(const RankInfo& rank_info) {
  return over_tcp(rank_info, group_options_from_environment());
}

ProcessGroup ProcessGroup::over_tcp(const RankInfo& rank_info, const GroupOptions& options) {
  return make_group(connect_tcp(rank_info), options,
                    rank_info.size / std::max(1, rank_info.local_size));
}

ProcessGroup ProcessGroup::over_shm(const RankInfo& rank_info) {
  return over_shm(rank_info, group_options_from_environment());
}

ProcessGroup ProcessGroup::over_shm(const RankInfo& rank_info, const GroupOptions& options) {
  return make_group(connect_shm(rank_info), options);
}

int ProcessGroup::rank() const {
  return state_->calls.backend().rank();
}

int ProcessGroup::size() const {
  return state_->calls.backend().size();
}

std::string ProcessGroup::backend_name() const {
  return state_->calls.backend().name();
}

void ProcessGroup::barrier() {
  state_->run(make_call(Collective::barrier, DataType::fp32, 0), nullptr, nullptr);
}

ProcessGroup ProcessGroup::split(int color, int key) {
  struct Bid {
    std::int32_t color, key;
    Endpoint endpoint;
  };
  const Bid mine{color, key, state_->calls.backend().listen()};
  std::vector<Bid> bids(size());
  all_gather(&mine, bids.data(), sizeof(Bid) * size(), DataType::uint8, "split");

  std::vector<int> members;
  for (int r = 0; r < size(); ++r)
    if (bids[r].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return bids[a].key < bids[b].key; });
  std::vector<Endpoint> endpoints;
  for (const int r : members) endpoints.push_back(bids[r].endpoint);
  const auto my_rank =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());

  const auto name = fmt::format("{}{}split{}.color{}", state_->name,
                                state_->name.empty() ? "" : ".", ++state_->splits, color);
  ProcessGroup group(state_->calls.backend().connect_sub_group(name, my_rank, endpoints),
                     state_->algorithms);
  group.state_->name = name;
  if (state_->make_device_backend)
    group.add_device(state_->make_device_backend, state_->is_device_memory);
  group.set_fence(state_->calls.fence());
  return group;
}

void ProcessGroup::add_device(MakeBackend make_backend, IsDeviceMemory is_device_memory) {
  state_->calls.add_device(make_backend(*this), is_device_memory);
  state_->make_device_backend = std::move(make_backend);
  state_->is_device_memory = std::move(is_device_memory);
}

void ProcessGroup::set_fence(Fence fence) {
  state_->calls.set_fence(std::move(fence));
}

void ProcessGroup::set_algorithms(AlgorithmSelection algorithms) {
  const auto& costs = state_->algorithms.costs();
  if (!algorithms.costs() && costs) algorithms.set_costs(*costs);
  state_->algorithms = std::move(algorithms);
}

const Algorithm& ProcessGroup::algorithm_for(Collective collective, std::size_t count,
                                             DataType type) const {
  return state_->algorithms.choose(collective, count, type, size());
}

std::size_t ProcessGroup::block_size(std::size_t count, int r) const {
  return Chunks::even(count, size()).size(r);
}

std::size_t ProcessGroup::block_begin(std::size_t count, int r) const {
  return Chunks::even(count, size()).begin(r);
}

void ProcessGroup::abort(const std::string& cause) noexcept {
  state_->calls.abort(cause);
}

Traffic ProcessGroup::traffic() const {
  return state_->calls.backend().traffic();
}

CallTimes ProcessGroup::times() const {
  return state_->calls.times();
}

void ProcessGroup::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                              ReduceOp op, std::string_view label) {
  state_->run(make_reduction(Collective::all_reduce, type, count, op, label), input, output);
}

void ProcessGroup::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  ReduceOp op, std::string_view label) {
  state_->run(make_reduction(Collective::reduce_scatter, type, count, op, label), input, output);
}

void ProcessGroup::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              std::string_view label) {
  state_->run(make_call(Collective::all_gather, type, count, label), input, output);
}

void ProcessGroup::broadcast(void* data, std::size_t count, DataType type, int root,
                             std::string_view label) {
  state_->run(make_rooted(make_call(Collective::broadcast, type, count, label), root), nullptr,
              data);
}

void ProcessGroup::reduce(const void* input, void* output, std::size_t count, DataType type,
                          int root, ReduceOp op, std::string_view label) {
  state_->run(make_rooted(make_reduction(Collective::reduce, type, count, op, label), root), input,
              output);
}

void ProcessGroup::gather(const void* input, void* output, std::size_t count, DataType type,
                          int root, std::string_view label) {
  state_->run(make_rooted(make_call(Collective::gather, type, count, label), root), input, output);
}

void ProcessGroup::scatter(const void* input, void* output, std::size_t count, DataType type,
                           int root, std::string_view label) {
  state_->run(make_rooted(make_call(Collective::scatter, type, count, label), root), input, output);
}

void ProcessGroup::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              std::string_view label) {
  require(count % size() == 0,
          "all_to_all: {} elements cannot be divided into {} blocks of equal length, one for each "
          "rank",
          count, size());
  state_->run(make_call(Collective::all_to_all, type, count, label), input, output);
}

void ProcessGroup::send(const void* data, std::size_t count, DataType type, int to,
                        std::string_view label) {
  state_->run(state_->between(rank(), to, count, type, label), data, nullptr);
}

void ProcessGroup::recv(void* data, std::size_t count, DataType type, int from,
                        std::string_view label) {
  state_->run(state_->between(from, rank(), count, type, label), nullptr, data);
}

Work ProcessGroup::all_reduce_async(const void* input, void* output, std::size_t count,
                                    DataType type, ReduceOp op, std::string_view label) {
  return state_->start(make_reduction(Collective::all_reduce, type, count, op, label), input,
                       output);
}

Work ProcessGroup::reduce_scatter_async(const void* input, void* output, std::size_t count,
                                        DataType type, ReduceOp op, std::string_view label) {
  return state_->start(make_reduction(Collective::reduce_scatter, type, count, op, label), input,
                       output);
}

Work ProcessGroup::all_gather_async(const void* input, void* output, std::size_t count,
                                    DataType type, std::string_view label) {
  return state_->start(make_call(Collective::all_gather, type, count, label), input, output);
}

Work ProcessGroup::send_async(const void* data, std::size_t count, DataType type, int to,
                              std::string_view label) {
  return state_->start(state_->between(rank(), to, count, type, label), data, nullptr);
}

Work ProcessGroup::recv_async(void* data, std::size_t count, DataType type, int from,
                              std::string_view label) {
  return state_->start(state_->between(from, rank(), count, type, label), nullptr, data);
}

void ProcessGroup::require_equal(const char* collective, std::size_t expected, std::size_t seen) {
  require(expected == seen, "{}: expected a span of {} elements, got {}", collective, expected,
          seen);
}

// A call that moves data between this rank and another.
Call ProcessGroup::State::between(int from, int to, std::size_t count, DataType type,
                                  std::string_view label) const {
  const int self = calls.backend().rank(), size = calls.backend().size();
  const int other = from == self ? to : from;
  require(other >= 0 && other < size && other != self,
          "rank {} can send to and receive from the other ranks of 0 to {}, not rank {}", self,
          size - 1, other);
  Call call = make_rooted(make_call(Collective::point_to_point, type, count, label), from);
  call.peer = to;
  return call;
}

void run_threads(int size, const std::function<void(ProcessGroup&)>& body) {
  run_threads(size, body, group_options_from_environment());
}

void run_threads(int size, const std::function<void(ProcessGroup&)>& body,
                 const GroupOptions& options) {
  const auto world = make_threads_world(size);
  std::mutex mutex;
  std::exception_ptr first;
  AlgorithmSelection algorithms = selection_behind(options.algorithms, options.link, "threads", 1);
  if (!algorithms.costs()) algorithms.set_costs(costs_here("threads"));
  const auto run_rank = [&](int rank, const std::function<void(ProcessGroup&)>& rank_body) {
    std::optional<ProcessGroup> group;
    try {
      Connections connections = behind_link(connect_threads(world, rank), options.link);
      group.emplace(make_schedule_backend(std::move(connections), options.executor), algorithms);
      rank_body(*group);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      if (group) group->abort(fmt::format("rank {} gave up: {}", rank, error.what()));
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  try {
    for (int rank = 1; rank < size; ++rank)
      threads.push_back(start_thread(fmt::format("rank {} of {}", rank, size),
                                     [&run_rank, &body, rank] { run_rank(rank, body); }));
    run_rank(0, body);
  } catch (const Error& error) {
    // The ranks that have started wait for one that never will: rank 0 fails for it.
    const std::string cause = error.what();
    run_rank(0, [&cause](ProcessGroup&) { fail("{}", cause); });
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ringside::collectives
