#include "collectives/process_group.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/call_mismatch.hpp"
#include "collectives/call_queue.hpp"
#include "collectives/diagnostics/call_history.hpp"
#include "collectives/group_options.hpp"
#include "collectives/selection/calibration.hpp"
#include "collectives/values_of_all_ranks.hpp"

namespace ringside::collectives {
namespace {

// Throws Error unless `seen` has `elements` elements of the same type as `other`.
void require_fits(Collective collective, const ConstBuffer& seen, std::size_t elements,
                  const ConstBuffer& other) {
  require(elements == seen.count, "{}: expected a span of {} elements, got {}", name_of(collective),
          elements, seen.count);
  require(seen.type == other.type, "{}: expected input and output of one type, got {} and {}",
          name_of(collective), name_of(other.type), name_of(seen.type));
}

ProcessGroup make_group(Connections bare, const GroupOptions& options, int hosts = 1) {
  Connections connections = behind_link(std::move(bare), options.link);
  AlgorithmSelection algorithms =
      agree_on_costs(connections, options.executor, options.algorithms, options.link, hosts);
  return ProcessGroup(make_schedule_backend(std::move(connections), options.executor),
                      std::move(algorithms));
}

}  // namespace

struct ProcessGroup::State {
  State(std::unique_ptr<Backend> backend, AlgorithmSelection selection)
      : calls(std::move(backend)), algorithms(std::move(selection)) {}

  // The next call: of a collective over `count` elements of the type of `data`. Checks the
  // arguments, selects the algorithm, and keeps the call for finish().
  Call next(Collective collective, const ConstBuffer& data, std::uint64_t count,
            std::string_view label, ReduceOp op = ReduceOp::sum, int root = 0, int peer = 0) {
    const int size = calls.backend().size();
    require(root >= 0 && root < size, "{}: the root must be one of the ranks 0 to {}, not {}",
            name_of(collective), size - 1, root);
    require(op != ReduceOp::avg || is_floating(data.type),
            "{}: avg is not defined for {}; use sum and divide with the rounding that you need",
            name_of(collective), name_of(data.type));
    Call call{.collective = collective,
              .type = data.type,
              .reduce = op,
              .root = root,
              .count = count,
              .peer = peer,
              .label = label};
    if (collective == Collective::point_to_point) return call;
    call.algorithm = number_of(algorithms.choose(collective, count, data.type, size));
    made.add(made.last() + 1, call);
    return call;
  }

  // A call that moves data between this rank and another. Each pair of ranks counts its own.
  Call between(int from, int to, const ConstBuffer& data, std::string_view label) {
    const int self = calls.backend().rank(), size = calls.backend().size();
    const int other = from == self ? to : from;
    require(other >= 0 && other < size && other != self,
            "rank {} can send to and receive from the other ranks of 0 to {}, not rank {}", self,
            size - 1, other);
    return next(Collective::point_to_point, data, data.count, label, ReduceOp::sum, from, to);
  }

  CallQueue calls;
  AlgorithmSelection algorithms;
  CallHistory made;
  std::string name;               // of a sub-group: "split2.color0@2,3"
  std::vector<int> ranks_of_job;  // [rank of this sub-group]; empty: this group is the job
  int splits = 0;
  DeviceCalls device;  // for sub-groups
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

ProcessGroup ProcessGroup::over(std::string_view backend, const RankInfo& given,
                                const GroupOptions& options) {
  RankInfo rank_info = given;
  rank_info.backend = backend;
  require(backend == "auto" || backend == "tcp" || backend == "shm",
          "there is no backend '{}' to connect ranks with: take auto, tcp or shm", backend);
  if (backend == "shm") return make_group(connect_shm(rank_info), options);
  return make_group(backend == "tcp" ? connect_tcp(rank_info) : connect_automatic(rank_info),
                    options, rank_info.size / std::max(1, rank_info.local_size));
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

ProcessGroup ProcessGroup::split(int color, int key) {
  struct Bid {
    std::int32_t color, key;
    Endpoint endpoint;
  };
  const Bid mine{color, key, state_->calls.backend().listen()};
  const auto bids = values_of_all_ranks(*this, mine, "split");

  std::vector<int> members;
  for (int r = 0; r < size(); ++r)
    if (bids[r].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return bids[a].key < bids[b].key; });
  std::vector<Endpoint> endpoints;
  for (const int r : members) endpoints.push_back(bids[r].endpoint);
  const auto my_rank =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());

  // The name ends with the members' ranks in the job, so that an error can be read without it.
  for (int& r : members)
    if (!state_->ranks_of_job.empty()) r = state_->ranks_of_job[static_cast<std::size_t>(r)];
  const std::string outer = state_->name.substr(0, state_->name.find('@'));
  const auto name = fmt::format("{}{}split{}.color{}@{}", outer, outer.empty() ? "" : ".",
                                ++state_->splits, color, fmt::join(members, ","));
  ProcessGroup group(state_->calls.backend().connect_sub_group(name, my_rank, endpoints),
                     state_->algorithms);
  group.state_->name = name;
  group.state_->ranks_of_job = std::move(members);
  group.use_device(state_->device);
  return group;
}

void ProcessGroup::use_device(DeviceCalls device) {
  if (device.make_backend)
    state_->calls.add_device(device.make_backend(*this), device.is_device_memory);
  state_->calls.set_fence(device.fence);
  state_->device = std::move(device);
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

void ProcessGroup::finish() {
  const CallHistory ours = state_->made;
  const auto made = values_of_all_ranks(*this, ours, "the calls of all ranks");
  const auto& of_job = state_->ranks_of_job;
  const auto in_job = [&](int r) {
    return of_job.empty() ? r : of_job[static_cast<std::size_t>(r)];
  };
  for (int r = 0; r < size(); ++r)
    if (const auto number = ours.first_difference(made[r]))
      check_call(*number, ours.at(*number), made[r].at(*number), in_job(rank()), in_job(r));
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

void ProcessGroup::all_reduce(ConstBuffer input, Buffer output, ReduceOp op,
                              std::string_view label) {
  require_fits(Collective::all_reduce, output, input.count, input);
  state_->calls.run(state_->next(Collective::all_reduce, input, input.count, label, op),
                    input.address, output.address);
}

void ProcessGroup::all_reduce(Buffer data, ReduceOp op, std::string_view label) {
  state_->calls.run(state_->next(Collective::all_reduce, data, data.count, label, op), data.address,
                    data.address);
}

void ProcessGroup::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op,
                                  std::string_view label) {
  require_fits(Collective::reduce_scatter, output, block_size(input.count, rank()), input);
  state_->calls.run(state_->next(Collective::reduce_scatter, input, input.count, label, op),
                    input.address, output.address);
}

void ProcessGroup::all_gather(ConstBuffer input, Buffer output, std::string_view label) {
  require_fits(Collective::all_gather, input, block_size(output.count, rank()), output);
  state_->calls.run(state_->next(Collective::all_gather, output, output.count, label),
                    input.address, output.address);
}

void ProcessGroup::broadcast(Buffer data, int root, std::string_view label) {
  state_->calls.run(
      state_->next(Collective::broadcast, data, data.count, label, ReduceOp::sum, root), nullptr,
      data.address);
}

void ProcessGroup::reduce(ConstBuffer input, Buffer output, int root, ReduceOp op,
                          std::string_view label) {
  if (rank() == root) require_fits(Collective::reduce, output, input.count, input);
  state_->calls.run(state_->next(Collective::reduce, input, input.count, label, op, root),
                    input.address, output.address);
}

void ProcessGroup::gather(ConstBuffer input, Buffer output, int root, std::string_view label) {
  const std::size_t count = input.count * size();
  if (rank() == root) require_fits(Collective::gather, output, count, input);
  state_->calls.run(state_->next(Collective::gather, input, count, label, ReduceOp::sum, root),
                    input.address, output.address);
}

void ProcessGroup::scatter(ConstBuffer input, Buffer output, int root, std::string_view label) {
  const std::size_t count = output.count * size();
  if (rank() == root) require_fits(Collective::scatter, input, count, output);
  state_->calls.run(state_->next(Collective::scatter, output, count, label, ReduceOp::sum, root),
                    input.address, output.address);
}

void ProcessGroup::all_to_all(ConstBuffer input, Buffer output, std::string_view label) {
  require_fits(Collective::all_to_all, output, input.count, input);
  require(input.count % size() == 0,
          "all_to_all: {} elements cannot be divided into {} blocks of equal length, one for each "
          "rank",
          input.count, size());
  state_->calls.run(state_->next(Collective::all_to_all, input, input.count, label), input.address,
                    output.address);
}

void ProcessGroup::barrier() {
  const ConstBuffer nothing(nullptr, 0, DataType::fp32);
  state_->calls.run(state_->next(Collective::barrier, nothing, 0, {}), nullptr, nullptr);
}

void ProcessGroup::send(ConstBuffer data, int to, std::string_view label) {
  state_->calls.run(state_->between(rank(), to, data, label), data.address, nullptr);
}

void ProcessGroup::recv(Buffer data, int from, std::string_view label) {
  state_->calls.run(state_->between(from, rank(), data, label), nullptr, data.address);
}

Work ProcessGroup::all_reduce_async(Buffer data, ReduceOp op, std::string_view label) {
  return state_->calls.start(state_->next(Collective::all_reduce, data, data.count, label, op),
                             data.address, data.address);
}

Work ProcessGroup::reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op,
                                        std::string_view label) {
  require_fits(Collective::reduce_scatter, output, block_size(input.count, rank()), input);
  return state_->calls.start(
      state_->next(Collective::reduce_scatter, input, input.count, label, op), input.address,
      output.address);
}

Work ProcessGroup::all_gather_async(ConstBuffer input, Buffer output, std::string_view label) {
  require_fits(Collective::all_gather, input, block_size(output.count, rank()), output);
  return state_->calls.start(state_->next(Collective::all_gather, output, output.count, label),
                             input.address, output.address);
}

Work ProcessGroup::send_async(ConstBuffer data, int to, std::string_view label) {
  return state_->calls.start(state_->between(rank(), to, data, label), data.address, nullptr);
}

Work ProcessGroup::recv_async(Buffer data, int from, std::string_view label) {
  return state_->calls.start(state_->between(from, rank(), data, label), nullptr, data.address);
}

}  // namespace ringside::collectives
