// Our own collectives: an executor carries out schedules over a transport.
#include <functional>
#include <map>
#include <tuple>
#include <type_traits>
#include <vector>

#include "collectives/algorithms/aligned_chunks.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/execution/executor.hpp"
#include "collectives/execution/reduce.hpp"
#include "collectives/execution/watchdog.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {
namespace {

class ScheduleBackend final : public Backend {
 public:
  ScheduleBackend(Connections connections, ExecutorOptions options)
      : connections_(std::move(connections)),
        options_(std::move(options)),
        watchdog_(*connections_.transport, *connections_.control, options_),
        executor_(make_executor(watchdog_, options_)),
        sent_to_(size()),
        received_from_(size()) {}

  int rank() const override { return connections_.transport->rank(); }
  int size() const override { return connections_.transport->size(); }
  std::string name() const override { return std::string(connections_.transport->name()); }
  Traffic traffic() const override { return watchdog_.traffic(); }

  void run(const Call& call, const void* input, void* output, const BlockBegins& begins) override {
    const std::uint64_t number = next_number(call);
    watchdog_.begin(number, call);
    try {
      const Schedule& schedule = schedule_of(call);
      watchdog_.set_steps(schedule.steps.size());
      watchdog_.listen_sometimes();
      const int parts = std::max(1, schedule.chunks / size());  // of a block
      const Chunks chunks =
          call.unequal ? Chunks::from(begins.output, parts) : equal_chunks(call, schedule);
      const Chunks input_chunks = call.unequal ? Chunks::from(begins.input, parts) : chunks;
      if (call.unequal && call.collective == Collective::all_to_all) check_direct(call, schedule);
      const Buffers buffers =
          buffers_of(call, chunks.chunks(), static_cast<const std::byte*>(input),
                     static_cast<std::byte*>(output));
      executor_->run({schedule, call, number, chunks, input_chunks, buffers});
      watchdog_.end();
      if (call.reduce == ReduceOp::avg)
        scale_for_avg(call.type, output, chunks.size(buffers.kept), size());
    } catch (...) {
      watchdog_.give_up();
    }
  }

  void interrupt(const std::string& cause) noexcept override { watchdog_.interrupt(cause); }

  void set_names(const RankNames& names) override { watchdog_.set_names(names); }

  Endpoint listen() override { return connections_.connector->listen(); }

  std::unique_ptr<Backend> connect_sub_group(const std::string& name, int rank,
                                             const std::vector<Endpoint>& members) override {
    ExecutorOptions options = options_;
    options.group = name;
    Connections inner = telling_others(
        [&] { return connections_.connector->connect(name, rank, members, looking()); });
    adopt(*inner.control, name);
    if (connections_.wire) inner = behind_wire(std::move(inner), connections_.wire);
    return std::make_unique<ScheduleBackend>(std::move(inner), options);
  }

  Streams connect_streams(const std::string& name, int rank,
                          const std::vector<Endpoint>& members) override {
    Streams streams = telling_others(
        [&] { return connections_.connector->connect_streams(name, rank, members, looking()); });
    adopt(*streams.control, name);
    streams.wire = connections_.wire;
    streams.options = options_;
    streams.options.group = name;
    return streams;
  }

  void abort(const std::string& cause) noexcept override {
    watchdog_.abort(RankFailure(connections_.control->names().in_job(rank()), cause));
  }

 private:
  // Of a sub-group.
  void adopt(ControlChannel& control, const std::string& name) const {
    const ControlChannel& ours = *connections_.control;
    control.set_names(RankNames(ranks_of_sub_group(name), ours.names().mesh()));
    control.join(ours);
  }

  // While a sub-group connects, a member may die, and others may ask themselves where this rank is.
  std::function<void()> looking() {
    return [this] { watchdog_.look_while_connecting(); };
  }

  // Calls `connect`. If it fails, the other ranks are told the cause: without it they would blame
  // this rank, which leaves.
  template <class Connect>
  std::invoke_result_t<Connect> telling_others(Connect connect) {
    try {
      return connect();
    } catch (const RankFailure& failure) {
      watchdog_.abort(failure);
      throw;
    } catch (const Error& error) {
      abort(error.what());
      throw;
    }
  }

  // No rank knows how long a block is that it only passes on.
  static void check_direct(const Call& call, const Schedule& schedule) {
    for (const Step& step : schedule.steps)
      require(!step.send || (step.send->input && step.send->chunks.count == 1),
              "{}: this algorithm does not send each block directly to its rank, as blocks of "
              "unequal size need: take pairwise",
              describe(call));
  }

  // Made once for each kind of call, and kept: executors refer to it.
  const Schedule& schedule_of(const Call& call) {
    const auto [known, is_new] =
        schedules_.try_emplace({call.collective, call.algorithm, call.root, call.peer});
    if (is_new) known->second = schedule_for(call);
    return known->second;
  }

  Schedule schedule_for(const Call& call) const {
    if (call.collective != Collective::point_to_point) {
      const Algorithm* const algorithm = algorithm_numbered(call.algorithm);
      require(algorithm != nullptr, "{}: this rank knows no such algorithm", describe(call));
      return make_schedule(*algorithm, size(), rank(), call.root);
    }
    Step step;
    if (rank() == call.root) step.send = Send{.to = call.peer, .chunks = {0}};
    if (rank() == call.peer)
      step.receive = Receive{.from = call.root, .chunks = {0}, .action = Action::overwrite};
    return {.chunks = 1, .steps = {step}};
  }

  // All ranks count their collectives together. Two ranks count the sends from the one to the
  // other.
  std::uint64_t next_number(const Call& call) {
    if (call.collective != Collective::point_to_point) return ++collectives_;
    return ++(rank() == call.root ? sent_to_[call.peer] : received_from_[call.root]);
  }

  Chunks equal_chunks(const Call& call, const Schedule& schedule) const {
    if (has_blocks(call.collective))
      return Chunks::even(call.count, size(), schedule.chunks / size());
    if (call.collective == Collective::point_to_point) return Chunks::even(call.count, 1);
    return aligned_chunks(call.count, schedule.chunks, size_of(call.type));
  }

  Buffers buffers_of(const Call& call, int chunks, const std::byte* input,
                     std::byte* output) const {
    using enum Collective;
    const int parts = std::max(1, chunks / size());  // of a block
    const ChunkRange none{0, 0}, mine{rank() * parts, parts}, all{0, chunks};
    const bool is_root = rank() == call.root;
    switch (call.collective) {
      case all_reduce:
      case all_to_all:
        return {input, all, output, all};
      case reduce_scatter:
        return {input, all, output, mine};
      case all_gather:
        return {input, mine, output, all};
      case broadcast:
        return {output, all, output, all};
      case reduce:
        return {input, all, output, is_root ? all : none};
      case gather:
        return {input, mine, output, is_root ? all : none};
      case scatter:
        return {input, is_root ? all : none, output, mine};
      case point_to_point:
        return {input, is_root ? all : none, output, is_root ? none : all};
      case barrier:
        return {nullptr, none, nullptr, none};
    }
    fail("no buffers are known for {}", describe(call));
  }

  Connections connections_;
  const ExecutorOptions options_;
  std::map<std::tuple<Collective, std::uint8_t, std::int32_t, std::int32_t>, Schedule> schedules_;
  Watchdog watchdog_;  // in front of the transport
  std::unique_ptr<Executor> executor_;
  std::uint64_t collectives_ = 0;
  std::vector<std::uint64_t> sent_to_, received_from_;  // [rank]
};

}  // namespace

void Backend::divide_sum(const Call& call, void* output) const {
  if (call.reduce != ReduceOp::avg) return;
  if (call.collective == Collective::all_reduce ||
      (call.collective == Collective::reduce && rank() == call.root))
    scale_for_avg(call.type, output, call.count, size());
  if (call.collective == Collective::reduce_scatter)
    scale_for_avg(call.type, output, Chunks::even(call.count, size()).size(rank()), size());
}

Streams Backend::connect_streams(const std::string&, int, const std::vector<Endpoint>&) {
  fail("the {} backend has no messages outside of calls", name());
}

std::unique_ptr<Backend> make_schedule_backend(Connections connections, ExecutorOptions options) {
  return std::make_unique<ScheduleBackend>(std::move(connections), std::move(options));
}

}  // namespace ringside::collectives
