#include "lab/pictures/simulated_traces.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "parallel/pipeline/lower.hpp"

namespace ringside::cli {

using pipeline_parallel::Action;
using pipeline_parallel::Kind;
using planning::Simulation;

namespace {

// The replica whose ranks compute longest.
std::size_t slowest_replica(const Simulation& s) {
  const auto busy = [](const pipeline_parallel::Timing& timing) {
    return std::accumulate(timing.busy.begin(), timing.busy.end(), 0.0);
  };
  return static_cast<std::size_t>(std::ranges::max_element(s.timeline.replicas, {}, busy) -
                                  s.timeline.replicas.begin());
}

// The names of the executor's phases.
const char* phase_of(Kind kind) {
  if (kind == Kind::forward) return "forward";
  if (kind == Kind::backward_input) return "backward input";
  return kind == Kind::backward_weight ? "backward weight" : "backward";
}

RankTrace trace_of(const Simulation& s, std::size_t replica, int rank) {
  using enum Trace::Kind;
  RankTrace trace;
  trace.rank = static_cast<int>(s.replicas[replica].units[rank].first);
  if (s.plan.mesh.ranks() > 1) trace.coordinates = s.plan.mesh.describe(trace.rank);
  const auto add = [&](Trace::Kind kind, const char* name, const std::string& about, double start,
                       double end) {
    const auto track = kind == call ? Trace::Track::communication : Trace::Track::compute;
    trace.spans.push_back({track, kind, name, about, start, end, kind == call ? start : -1});
  };
  double last = 0;  // when the last phase ended
  for (std::size_t i = 0; i < s.lowered.actions[rank].size(); ++i) {
    const Action& action = s.lowered.actions[rank][i];
    const auto& [start, end] = s.timeline.replicas[replica].spans[rank][i];
    if (end == start || is_receive(action.kind)) continue;
    const std::string about = text_of(action);
    if (is_send(action.kind)) {
      const bool on = action.kind == Kind::send_activation;
      add(call, "send",
          fmt::format("{} of micro-batch {} to stage {}", on ? "activations" : "gradients",
                      action.micro_batch, other_stage(action)),
          start, end);
      trace.spans.back().bytes = static_cast<std::uint64_t>(s.load.message_bytes);
    } else if (action.kind == Kind::reduce_gradients) {
      add(call, "reduce gradients", fmt::format("stage {}", action.stage), start, end);
    } else {
      const auto received = receive_before(s.lowered, action);
      if (received && start > last) {
        add(phase, "receive", text_of(*received), last, start);
        add(wait, "wait for recv", text_of(*received), last, start);
      }
      const double waits = s.timeline.exposed[replica][rank][i];
      add(phase, phase_of(action.kind), about, start, end);
      if (waits > 0) add(wait, "wait for communication", about, end - waits, end);
      last = end;
    }
  }
  const double reduced = s.timeline.reduced;
  if (reduced > last) {
    add(phase, "reduce gradients", "", last, reduced);
    add(wait, "wait for all ranks", "", last, reduced);
  }
  add(phase, "optimizer", "", reduced, s.step);
  add(phase, "step 1", "", 0, s.step);
  sort_spans(trace);
  return trace;
}

}  // namespace

std::vector<RankTrace> simulated_traces(const Simulation& simulation) {
  const std::size_t replica = slowest_replica(simulation);
  std::vector<RankTrace> traces;
  for (int rank = 0; rank < simulation.lowered.ranks(); ++rank)
    traces.push_back(trace_of(simulation, replica, rank));
  return traces;
}

TimedSchedule timed_schedule(const Simulation& simulation) {
  return {simulation.lowered, simulation.timeline.replicas[slowest_replica(simulation)]};
}

}  // namespace ringside::cli
