#include "cli/pictures/simulation/simulated_traces.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

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
  switch (kind) {
    case Kind::forward:
      return "forward";
    case Kind::backward_input:
      return "backward input";
    case Kind::backward_weight:
      return "backward weight";
    case Kind::receive_activation:
    case Kind::receive_gradient:
      return "receive";
    default:
      return "backward";
  }
}

class TraceOfRank {
 public:
  TraceOfRank(const Simulation& s, std::size_t replica, int rank)
      : s_(s), replica_(replica), rank_(rank) {
    trace_.rank = static_cast<int>(s.replicas[replica].units[rank].first);
  }

  RankTrace run() {
    add(Trace::Track::compute, Trace::Kind::phase, "step 1", "", 0, s_.step);
    const auto& actions = s_.lowered.actions[rank_];
    for (std::size_t i = 0; i < actions.size(); ++i)
      action(actions[i], s_.timeline.replicas[replica_].spans[rank_][i],
             s_.timeline.exposed[replica_][rank_][i]);
    const double done = s_.timeline.reduced;
    if (done > last_) {
      add(Trace::Track::compute, Trace::Kind::phase, "reduce gradients", "", last_, done);
      add(Trace::Track::compute, Trace::Kind::wait, "wait for all ranks", "", last_, done);
    }
    add(Trace::Track::compute, Trace::Kind::phase, "optimizer", "", done, s_.step);
    std::ranges::stable_sort(trace_.spans, [](const TracedSpan& a, const TracedSpan& b) {
      return a.start != b.start ? a.start < b.start : a.end > b.end;
    });
    return std::move(trace_);
  }

 private:
  void add(Trace::Track track, Trace::Kind kind, std::string name, std::string about, double start,
           double end, double bytes = 0) {
    TracedSpan span{track, kind, std::move(name), std::move(about), start, end};
    span.bytes = static_cast<std::uint64_t>(bytes);
    if (kind == Trace::Kind::call) span.queued = start;
    trace_.spans.push_back(std::move(span));
  }

  void action(const Action& action, const pipeline_parallel::Span& span, double exposed) {
    const std::string about = text_of(action);
    if (is_send(action.kind)) {
      const bool on = action.kind == Kind::send_activation;
      if (span.end > span.start)
        add(Trace::Track::communication, Trace::Kind::call, "send",
            fmt::format("{} of micro-batch {} to stage {}", on ? "activations" : "gradients",
                        action.micro_batch, other_stage(action)),
            span.start, span.end, s_.load.message_bytes);
      return;
    }
    if (action.kind == Kind::reduce_gradients) {
      if (span.end > span.start)
        add(Trace::Track::communication, Trace::Kind::call, "reduce gradients",
            fmt::format("stage {}", action.stage), span.start, span.end);
      return;
    }
    if (span.end == span.start) return;
    add(Trace::Track::compute, Trace::Kind::phase, phase_of(action.kind), about, span.start,
        span.end);
    last_ = span.end;
    if (is_receive(action.kind)) {
      add(Trace::Track::compute, Trace::Kind::wait, "wait for recv", about, span.start, span.end);
      return;
    }
    if (exposed > 0)
      add(Trace::Track::compute, Trace::Kind::wait, "wait for communication", about,
          span.end - exposed, span.end);
  }

  const Simulation& s_;
  const std::size_t replica_;
  const int rank_;
  double last_ = 0;  // when its last phase ended
  RankTrace trace_;
};

}  // namespace

std::vector<RankTrace> simulated_traces(const Simulation& simulation) {
  const std::size_t replica = slowest_replica(simulation);
  std::vector<RankTrace> traces;
  for (int rank = 0; rank < simulation.lowered.ranks(); ++rank)
    traces.push_back(TraceOfRank(simulation, replica, rank).run());
  return traces;
}

TimedSchedule timed_schedule(const Simulation& simulation) {
  TimedSchedule timed{simulation.lowered,
                      simulation.timeline.replicas[slowest_replica(simulation)]};
  for (auto& spans : timed.timing.spans)
    for (auto& span : spans) span.start *= 1e3, span.end *= 1e3;
  timed.timing.step *= 1e3;
  return timed;
}

}  // namespace ringside::cli
