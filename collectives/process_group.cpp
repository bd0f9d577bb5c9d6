#include "collectives/process_group.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/environment.hpp"
#include "collectives/bootstrap/connect.hpp"
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

// What the group chooses its algorithms by, as far as this rank knows, where a link is in the way.
AlgorithmSelection choosing_behind(AlgorithmSelection algorithms, const std::optional<Link>& link,
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
      choosing_behind(options.algorithms, options.link, connections.transport->name(), hosts);
  algorithms = agree_on_costs(connections, options.executor, std::move(algorithms), hosts);
  return ProcessGroup(make_schedule_backend(std::move(connections), options.executor),
                      std::move(algorithms));
}

}  // namespace

GroupOptions group_options_from_environment() {
  GroupOptions options;
  if (const auto seconds = integer_environment("RINGSIDE_TIMEOUT", 1, 1000000))
    options.executor.timeout = Seconds(*seconds);
  if (const auto seconds = integer_environment("RINGSIDE_WARN_AFTER", 0, 1000000))
    options.executor.warn_after = Seconds(*seconds);
  if (const auto bytes = integer_environment("RINGSIDE_SLICE_BYTES", 64, 1 << 30))
    options.executor.slice_bytes = static_cast<std::size_t>(*bytes);
  if (const auto forced = environment("RINGSIDE_ALGORITHM"))
    options.algorithms = AlgorithmSelection(*forced);
  options.link = link_from_environment();
  return options;
}

ProcessGroup ProcessGroup::from_environment() {
  return over(environment("RINGSIDE_BACKEND").value_or("auto"), rank_info_from_environment());
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

ProcessGroup ProcessGroup::over_tcp(const RankInfo& rank_info, const GroupOptions& options) {
  return make_group(connect_tcp(rank_info), options,
                    rank_info.size / std::max(1, rank_info.local_size));
}

ProcessGroup ProcessGroup::over_shm(const RankInfo& rank_info, const GroupOptions& options) {
  return make_group(connect_shm(rank_info), options);
}

void ProcessGroup::barrier() {
  run(make_call(Collective::barrier, DataType::fp32, 0), nullptr, nullptr);
}

ProcessGroup ProcessGroup::split(int color, int key) {
  struct Bid {
    std::int32_t color, key;
    Endpoint endpoint;
  };
  const Bid mine{color, key, calls_->backend().listen()};
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

  const auto name =
      fmt::format("{}{}split{}.color{}", name_, name_.empty() ? "" : ".", ++splits_, color);
  ProcessGroup group(calls_->backend().connect_sub_group(name, my_rank, endpoints), algorithms_);
  group.name_ = name;
  return group;
}

void ProcessGroup::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                              ReduceOp op, std::string_view label) {
  run(make_reduction(Collective::all_reduce, type, count, op, label), input, output);
}

void ProcessGroup::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  ReduceOp op, std::string_view label) {
  run(make_reduction(Collective::reduce_scatter, type, count, op, label), input, output);
}

void ProcessGroup::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              std::string_view label) {
  run(make_call(Collective::all_gather, type, count, label), input, output);
}

void ProcessGroup::broadcast(void* data, std::size_t count, DataType type, int root,
                             std::string_view label) {
  run(make_rooted(make_call(Collective::broadcast, type, count, label), root), nullptr, data);
}

void ProcessGroup::reduce(const void* input, void* output, std::size_t count, DataType type,
                          int root, ReduceOp op, std::string_view label) {
  run(make_rooted(make_reduction(Collective::reduce, type, count, op, label), root), input, output);
}

void ProcessGroup::gather(const void* input, void* output, std::size_t count, DataType type,
                          int root, std::string_view label) {
  run(make_rooted(make_call(Collective::gather, type, count, label), root), input, output);
}

void ProcessGroup::scatter(const void* input, void* output, std::size_t count, DataType type,
                           int root, std::string_view label) {
  run(make_rooted(make_call(Collective::scatter, type, count, label), root), input, output);
}

void ProcessGroup::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              std::string_view label) {
  require(count % size() == 0,
          "all_to_all: {} elements cannot be shared out among {} ranks in blocks of equal length",
          count, size());
  run(make_call(Collective::all_to_all, type, count, label), input, output);
}

void ProcessGroup::send(const void* data, std::size_t count, DataType type, int to,
                        std::string_view label) {
  run(between(rank(), to, count, type, label), data, nullptr);
}

void ProcessGroup::recv(void* data, std::size_t count, DataType type, int from,
                        std::string_view label) {
  run(between(from, rank(), count, type, label), nullptr, data);
}

Work ProcessGroup::all_reduce_async(const void* input, void* output, std::size_t count,
                                    DataType type, ReduceOp op, std::string_view label) {
  return start(make_reduction(Collective::all_reduce, type, count, op, label), input, output);
}

Work ProcessGroup::reduce_scatter_async(const void* input, void* output, std::size_t count,
                                        DataType type, ReduceOp op, std::string_view label) {
  return start(make_reduction(Collective::reduce_scatter, type, count, op, label), input, output);
}

Work ProcessGroup::all_gather_async(const void* input, void* output, std::size_t count,
                                    DataType type, std::string_view label) {
  return start(make_call(Collective::all_gather, type, count, label), input, output);
}

Work ProcessGroup::broadcast_async(void* data, std::size_t count, DataType type, int root,
                                   std::string_view label) {
  return start(make_rooted(make_call(Collective::broadcast, type, count, label), root), nullptr,
               data);
}

void ProcessGroup::require_equal(const char* collective, std::size_t expected, std::size_t seen) {
  require(expected == seen, "{}: a span of {} elements was expected, and one of {} was given",
          collective, expected, seen);
}

Call ProcessGroup::between(int from, int to, std::size_t count, DataType type,
                           std::string_view label) const {
  const int other = from == rank() ? to : from;
  require(other >= 0 && other < size() && other != rank(),
          "a send and its recv are between rank {} and another of the ranks 0 to {}, not rank {}",
          rank(), size() - 1, other);
  Call call = make_rooted(make_call(Collective::point_to_point, type, count, label), from);
  call.peer = to;
  return call;
}

// Checks what the caller has given, and chooses the algorithm.
Call ProcessGroup::complete(Call call) const {
  require(call.root >= 0 && call.root < size(),
          "{}: the root must be one of the ranks 0 to {}, not {}", name_of(call.collective),
          size() - 1, call.root);
  require(call.reduce != ReduceOp::avg || is_floating(call.type),
          "{}: avg is not defined for {}; use sum, and divide where you know how to round",
          name_of(call.collective), name_of(call.type));
  if (call.collective == Collective::point_to_point) return call;
  const Algorithm& algorithm = algorithms_.choose(call.collective, call.count, call.type, size());
  call.algorithm = static_cast<std::uint8_t>(&algorithm - all_algorithms().data());
  return call;
}

void ProcessGroup::run(const Call& call, const void* input, void* output) {
  calls_->run(complete(call), input, output);
}

Work ProcessGroup::start(const Call& call, const void* input, void* output) {
  return calls_->start(complete(call), input, output);
}

void run_threads(int size, const std::function<void(ProcessGroup&)>& body,
                 const GroupOptions& options) {
  const auto world = make_threads_world(size);
  std::mutex mutex;
  std::exception_ptr first;
  AlgorithmSelection algorithms = choosing_behind(options.algorithms, options.link, "threads", 1);
  if (!algorithms.costs()) algorithms.set_costs(costs_here("threads"));
  const auto run_rank = [&](int rank) {
    Connections connections = behind_link(connect_threads(world, rank), options.link);
    ProcessGroup group(make_schedule_backend(std::move(connections), options.executor), algorithms);
    try {
      body(group);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      group.abort(fmt::format("rank {} gave up: {}", rank, error.what()));
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  run_rank(0);
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ringside::collectives
