#include "cli/planning/simulated_traces.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/views/account.hpp"
#include "planning/json_fields.hpp"

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
    const std::string about =
        fmt::format("micro-batch {}, stage {}", action.micro_batch, action.stage);
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

std::vector<RankTrace> read_traces(const std::filesystem::path& path) {
  const nlohmann::json json = planning::read_json_file(path);
  planning::JsonFields file(json, path.string() + ": ");
  std::map<int, RankTrace> ranks;
  for (planning::JsonFields& event : file.list("traceEvents")) {
    if (event.text("ph") != "X") continue;
    const std::string kind = event.text("cat");
    TracedSpan span;
    span.track = kind == "call" ? Trace::Track::communication : Trace::Track::compute;
    span.kind = kind == "call"    ? Trace::Kind::call
                : kind == "wait"  ? Trace::Kind::wait
                : kind == "phase" ? Trace::Kind::phase
                                  : Trace::Kind::op;
    span.name = event.text("name");
    span.start = event.not_negative("ts") * 1e-6;
    span.end = span.start + event.not_negative("dur") * 1e-6;
    const auto rank = static_cast<int>(event.not_negative("pid"));
    ranks[rank].rank = rank;
    ranks[rank].spans.push_back(std::move(span));
  }
  std::vector<RankTrace> all;
  for (auto& [rank, trace] : ranks) all.push_back(std::move(trace));
  return all;
}

StepParts step_parts(const std::vector<RankTrace>& ranks) {
  StepParts parts;
  double steps = 0;
  for (const RankTrace& trace : ranks)
    for (const TracedSpan& step : trace.spans) {
      if (step.kind != Trace::Kind::phase || !step.name.starts_with("step ")) continue;
      ++steps;
      parts.step += step.seconds();
      for (const TracedSpan& span : trace.spans) {
        if (span.start < step.start || span.end > step.end) continue;
        if (span.kind == Trace::Kind::wait) parts.waits += span.seconds();
        if (span.kind != Trace::Kind::phase) continue;
        if (span.name == "forward") parts.forward += span.seconds();
        if (span.name.starts_with("backward")) parts.backward += span.seconds();
        if (span.name == "optimizer" || span.name == "clip") parts.update += span.seconds();
      }
    }
  require(steps > 0, "the trace has no whole step: it must be one of `ringside train --trace`");
  for (double* part : {&parts.step, &parts.forward, &parts.backward, &parts.update, &parts.waits})
    *part /= steps;
  return parts;
}

namespace {

std::vector<std::tuple<const char*, const char*, double, double>> rows_of(const StepParts& a,
                                                                          const StepParts& b) {
  return {{"step", "step", a.step, b.step},
          {"forward", "forward", a.forward, b.forward},
          {"backward", "backward", a.backward, b.backward},
          {"clip and optimizer", "update", a.update, b.update},
          {"waits for communication", "waits", a.waits, b.waits}};
}

}  // namespace

std::string comparison_text(const StepParts& predicted, const StepParts& measured) {
  std::string text =
      fmt::format("\nPredicted beside measured: a rank's mean, ms\n  {:26}{:>11}{:>11}{:>9}\n", "",
                  "predicted", "measured", "ratio");
  for (const auto& [name, key, a, b] : rows_of(predicted, measured))
    text += fmt::format("  {:26}{:>11}{:>11}{:>9}\n", name, table_number(a * 1e3),
                        table_number(b * 1e3), b > 0 ? fmt::format("{:.2f}", a / b) : "-");
  return text;
}

Json comparison_json(const StepParts& predicted, const StepParts& measured) {
  Json json;
  for (const auto& [name, key, a, b] : rows_of(predicted, measured))
    json[key] = {{"predicted_seconds", a}, {"measured_seconds", b}};
  return json;
}

}  // namespace ringside::cli
