#include "collectives/process_group.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/call_mismatch.hpp"
#include "collectives/calls/call_queue.hpp"
#include "collectives/calls/values_of_all_ranks.hpp"
#include "collectives/diagnostics/call_history.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/group_options.hpp"
#include "collectives/messages.hpp"
#include "collectives/rank_names.hpp"
#include "collectives/selection/calibration.hpp"

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

// Where the blocks of `buffer` begin; nothing if they are equal.
std::vector<std::size_t> begins_of(Collective collective, const ConstBlocks& buffer, int size,
                                   const char* which) {
  if (buffer.counts.empty()) return {};
  require(buffer.counts.size() == static_cast<std::size_t>(size),
          "{}: expected {} counts of the {}'s blocks, one for each rank, got {}",
          name_of(collective), size, which, buffer.counts.size());
  std::vector<std::size_t> begins = {0};
  for (const std::size_t count : buffer.counts) begins.push_back(begins.back() + count);
  require(begins.back() == buffer.count,
          "{}: the {} has {} elements, but the counts of its blocks ({}) add up to {}",
          name_of(collective), which, buffer.count, fmt::join(buffer.counts, ", "), begins.back());
  return begins;
}

}  // namespace

struct ProcessGroup::State {
  const OwnerProcess owner = {};

  State(std::unique_ptr<Backend> backend, AlgorithmSelection selection)
      : calls(std::move(backend)), algorithms(std::move(selection)) {}

  // The next call: of a collective over `count` elements of the type of `data`. Checks the
  // arguments, selects the algorithm, and keeps the call for finish().
  Call next(Collective collective, const ConstBuffer& data, std::uint64_t count,
            std::string_view label, ReduceOp op = ReduceOp::sum, int root = 0,
            bool unequal = false) {
    require(root >= 0 && root < size(), "{}: the root must be one of the ranks 0 to {}, not {}",
            name_of(collective), size() - 1, root);
    require(!is_bitwise(op) || !is_floating(data.type),
            "{}: {} is not defined for {}; use a type of integers", name_of(collective),
            name_of(op), name_of(data.type));
    require(op != ReduceOp::avg || is_floating(data.type),
            "{}: avg is not defined for {}; use sum and divide with the rounding that you need",
            name_of(collective), name_of(data.type));
    Call call{.collective = collective,
              .type = data.type,
              .reduce = op,
              .root = root,
              .count = count,
              .label = label,
              .unequal = unequal};
    if (collective == Collective::point_to_point) return call;
    call.algorithm = number_of(algorithms.choose(collective, count, data.type, size(), unequal));
    made.add(made.last() + 1, call);
    return call;
  }

  // A call with blocks in the buffer `whole`, of which `block` is this rank's. Only where
  // `has_whole` does this rank have that buffer.
  CallOnBuffers with_blocks(Collective collective, const ConstBlocks& whole,
                            const ConstBuffer& block, bool has_whole, const ConstBuffer& input,
                            const Buffer& output, std::string_view label,
                            ReduceOp op = ReduceOp::sum, int root = 0) {
    const bool unequal = !whole.counts.empty();
    std::size_t count = whole.count;
    BlockBegins begins;
    if (unequal) {
      // Ranks without the buffer give its counts, and no length of it.
      ConstBlocks given = whole;
      if (!has_whole)
        given.count = std::accumulate(given.counts.begin(), given.counts.end(), std::size_t{0});
      const bool divides =
          collective == Collective::reduce_scatter || collective == Collective::scatter;
      begins.input = begins_of(collective, given, size(), divides ? "input" : "output");
      begins.output = begins.input;
      count = begins.input.back();
      require_fits(collective, block, whole.counts[rank()], has_whole ? whole : block);
    } else if (has_root(collective)) {
      count = block.count * size();
      if (has_whole) require_fits(collective, whole, count, block);
    } else {
      require_fits(collective, block, Chunks::even(count, size()).size(rank()), whole);
    }
    return {next(collective, block, count, label, op, root, unequal), input.address, output.address,
            std::move(begins)};
  }

  Call between(int from, int to, const ConstBuffer& data, std::string_view label) {
    const int other = from == rank() ? to : from;
    require(other >= 0 && other < size() && other != rank(),
            "rank {} can send to and receive from the other ranks of 0 to {}, not rank {}", rank(),
            size() - 1, other);
    Call call = next(Collective::point_to_point, data, data.count, label, ReduceOp::sum, from);
    call.peer = to;
    return call;
  }

  // ---- The calls, after their arguments are checked. A blocking call and the asynchronous one of
  // the same name differ only in what CallQueue does with it.

  CallOnBuffers all_reduce(const ConstBuffer& input, const Buffer& output, ReduceOp op,
                           std::string_view label) {
    require_fits(Collective::all_reduce, output, input.count, input);
    return {next(Collective::all_reduce, input, input.count, label, op), input.address,
            output.address};
  }

  CallOnBuffers broadcast(const Buffer& data, int root, std::string_view label) {
    return {next(Collective::broadcast, data, data.count, label, ReduceOp::sum, root), nullptr,
            data.address};
  }

  CallOnBuffers reduce(const ConstBuffer& input, const Buffer& output, int root, ReduceOp op,
                       std::string_view label) {
    if (rank() == root) require_fits(Collective::reduce, output, input.count, input);
    return {next(Collective::reduce, input, input.count, label, op, root), input.address,
            output.address};
  }

  CallOnBuffers reduce_scatter(const ConstBlocks& input, const Buffer& output, ReduceOp op,
                               std::string_view label) {
    return with_blocks(Collective::reduce_scatter, input, output, true, input, output, label, op);
  }

  CallOnBuffers all_gather(const ConstBuffer& input, const Blocks& output, std::string_view label) {
    return with_blocks(Collective::all_gather, output, input, true, input, output, label);
  }

  CallOnBuffers gather(const ConstBuffer& input, const Blocks& output, int root,
                       std::string_view label) {
    return with_blocks(Collective::gather, output, input, rank() == root, input, output, label,
                       ReduceOp::sum, root);
  }

  CallOnBuffers scatter(const ConstBlocks& input, const Buffer& output, int root,
                        std::string_view label) {
    return with_blocks(Collective::scatter, input, output, rank() == root, input, output, label,
                       ReduceOp::sum, root);
  }

  CallOnBuffers all_to_all(const ConstBlocks& input, const Blocks& output, std::string_view label) {
    constexpr auto collective = Collective::all_to_all;
    require(input.counts.empty() == output.counts.empty(),
            "all_to_all: give the counts of the blocks of both buffers, or of none");
    if (!input.counts.empty()) {
      require_fits(collective, output, output.count, input);
      require(input.address != output.address || input.count == 0 || output.count == 0,
              "all_to_all: blocks of unequal size cannot be exchanged in place: give two buffers");
      BlockBegins begins{begins_of(collective, input, size(), "input"),
                         begins_of(collective, output, size(), "output")};
      require(input.counts[rank()] == output.counts[rank()],
              "all_to_all: rank {} sends {} elements to itself, but receives {}", rank(),
              input.counts[rank()], output.counts[rank()]);
      return {next(collective, input, 0, label, ReduceOp::sum, 0, true), input.address,
              output.address, std::move(begins)};
    }
    require_fits(collective, output, input.count, input);
    require(input.count % size() == 0,
            "all_to_all: {} elements cannot be divided into {} blocks of equal length, one for "
            "each rank",
            input.count, size());
    return {next(collective, input, input.count, label), input.address, output.address};
  }

  CallOnBuffers barrier() {
    return {next(Collective::barrier, ConstBuffer(nullptr, 0, DataType::fp32), 0, {})};
  }

  // Calls that move data between this rank and another. Each pair of ranks counts its own.
  CallOnBuffers send(const ConstBuffer& data, int to, std::string_view label) {
    return {between(rank(), to, data, label), data.address, nullptr};
  }
  CallOnBuffers recv(const Buffer& data, int from, std::string_view label) {
    return {between(from, rank(), data, label), nullptr, data.address};
  }

  int rank() const { return calls.backend().rank(); }
  int size() const { return calls.backend().size(); }

  CallQueue calls;
  AlgorithmSelection algorithms;
  CallHistory made;
  std::string name;  // of a sub-group: "split2.color0@2,3"
  RankNames names;
  int splits = 0;
  DeviceCalls device;  // for sub-groups
};

ProcessGroup::ProcessGroup(std::unique_ptr<Backend> backend)
    : ProcessGroup(std::move(backend), AlgorithmSelection()) {}

ProcessGroup::ProcessGroup(std::unique_ptr<Backend> backend, AlgorithmSelection algorithms)
    : state_(new State(std::move(backend), std::move(algorithms)), [](State* state) {
        if (state->owner.is_this()) delete state;
      }) {}

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
  const Calibration calibration = options.algorithms.costs() ? Calibration() : calibration_here();
  return over(backend == "tcp"   ? connect_tcp(rank_info, calibration)
              : backend == "shm" ? connect_shm(rank_info, {}, calibration)
                                 : connect_automatic(rank_info, {}, calibration),
              options);
}

// Of ranks that are connected already. If options.executor.group lists them, sentences name ranks
// by their numbers in the job.
ProcessGroup ProcessGroup::over(Connections bare, const GroupOptions& options) {
  Connections connections = behind_link(std::move(bare), options.link);
  const RankNames names(ranks_of_sub_group(options.executor.group));
  connections.control->set_names(names);
  const Transport& transport = *connections.transport;
  AlgorithmSelection algorithms = options.algorithms;
  algorithms.require_files_for(transport.size());
  MachineCosts costs = algorithms.costs().value_or(connections.costs);
  costs.common.slice_bytes =
      options.executor.slice_bytes > 0 ? options.executor.slice_bytes : transport.slice_bytes();
  costs.common.announced_bytes = transport.announced_bytes();
  algorithms.set_costs(costs);
  ProcessGroup group(make_schedule_backend(std::move(connections), options.executor),
                     std::move(algorithms));
  group.state_->name = options.executor.group;
  group.state_->names = names;
  return group;
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

Streams Messages::connect(ProcessGroup& group) {
  auto& state = *group.state_;
  const auto members = values_of_all_ranks(group, state.calls.backend().listen(), "messages");
  std::vector<int> ranks;
  for (int r = 0; r < group.size(); ++r) ranks.push_back(state.names.in_job(r));
  const std::string outer = state.name.substr(0, state.name.find('@'));
  const auto name = fmt::format("{}{}messages{}@{}", outer, outer.empty() ? "" : ".",
                                ++state.splits, fmt::join(ranks, ","));
  return state.calls.backend().connect_streams(name, group.rank(), members);
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
  const RankNames names = state_->names.of(members);
  for (int& r : members) r = state_->names.in_job(r);
  const std::string outer = state_->name.substr(0, state_->name.find('@'));
  const auto name = fmt::format("{}{}split{}.color{}@{}", outer, outer.empty() ? "" : ".",
                                ++state_->splits, color, fmt::join(members, ","));
  ProcessGroup group(state_->calls.backend().connect_sub_group(name, my_rank, endpoints),
                     state_->algorithms);
  group.state_->name = name;
  group.set_names(names);
  group.use_device(state_->device);
  return group;
}

void ProcessGroup::set_mesh(std::string_view mesh) {
  set_names(state_->names.in_mesh(mesh));
}

void ProcessGroup::set_names(const RankNames& names) {
  state_->names = names;
  state_->calls.backend().set_names(names);
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
  for (int r = 0; r < size(); ++r)
    if (const auto number = ours.first_difference(made[r]))
      check_call(*number, ours.at(*number), made[r].at(*number), rank(), r, state_->names);
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
  state_->calls.run(state_->all_reduce(input, output, op, label));
}

void ProcessGroup::all_reduce(Buffer data, ReduceOp op, std::string_view label) {
  state_->calls.run(state_->all_reduce(data, data, op, label));
}

void ProcessGroup::reduce_scatter(ConstBlocks input, Buffer output, ReduceOp op,
                                  std::string_view label) {
  state_->calls.run(state_->reduce_scatter(input, output, op, label));
}

void ProcessGroup::all_gather(ConstBuffer input, Blocks output, std::string_view label) {
  state_->calls.run(state_->all_gather(input, output, label));
}

void ProcessGroup::broadcast(Buffer data, int root, std::string_view label) {
  state_->calls.run(state_->broadcast(data, root, label));
}

void ProcessGroup::reduce(ConstBuffer input, Buffer output, int root, ReduceOp op,
                          std::string_view label) {
  state_->calls.run(state_->reduce(input, output, root, op, label));
}

void ProcessGroup::gather(ConstBuffer input, Blocks output, int root, std::string_view label) {
  state_->calls.run(state_->gather(input, output, root, label));
}

void ProcessGroup::scatter(ConstBlocks input, Buffer output, int root, std::string_view label) {
  state_->calls.run(state_->scatter(input, output, root, label));
}

void ProcessGroup::all_to_all(ConstBlocks input, Blocks output, std::string_view label) {
  state_->calls.run(state_->all_to_all(input, output, label));
}

void ProcessGroup::barrier() {
  state_->calls.run(state_->barrier());
}

void ProcessGroup::send(ConstBuffer data, int to, std::string_view label) {
  state_->calls.run(state_->send(data, to, label));
}

void ProcessGroup::recv(Buffer data, int from, std::string_view label) {
  state_->calls.run(state_->recv(data, from, label));
}

Work ProcessGroup::all_reduce_async(Buffer data, ReduceOp op, std::string_view label) {
  return state_->calls.start(state_->all_reduce(data, data, op, label));
}

Work ProcessGroup::reduce_scatter_async(ConstBlocks input, Buffer output, ReduceOp op,
                                        std::string_view label) {
  return state_->calls.start(state_->reduce_scatter(input, output, op, label));
}

Work ProcessGroup::all_gather_async(ConstBuffer input, Blocks output, std::string_view label) {
  return state_->calls.start(state_->all_gather(input, output, label));
}

Work ProcessGroup::broadcast_async(Buffer data, int root, std::string_view label) {
  return state_->calls.start(state_->broadcast(data, root, label));
}

Work ProcessGroup::reduce_async(ConstBuffer input, Buffer output, int root, ReduceOp op,
                                std::string_view label) {
  return state_->calls.start(state_->reduce(input, output, root, op, label));
}

Work ProcessGroup::gather_async(ConstBuffer input, Blocks output, int root,
                                std::string_view label) {
  return state_->calls.start(state_->gather(input, output, root, label));
}

Work ProcessGroup::scatter_async(ConstBlocks input, Buffer output, int root,
                                 std::string_view label) {
  return state_->calls.start(state_->scatter(input, output, root, label));
}

Work ProcessGroup::all_to_all_async(ConstBlocks input, Blocks output, std::string_view label) {
  return state_->calls.start(state_->all_to_all(input, output, label));
}

Work ProcessGroup::barrier_async() {
  return state_->calls.start(state_->barrier());
}

Work ProcessGroup::send_async(ConstBuffer data, int to, std::string_view label) {
  return state_->calls.start(state_->send(data, to, label));
}

Work ProcessGroup::recv_async(Buffer data, int from, std::string_view label) {
  return state_->calls.start(state_->recv(data, from, label));
}

}  // namespace ringside::collectives
