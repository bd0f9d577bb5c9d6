#include "cli/pictures/simulation/recorded_step.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/account/account.hpp"
#include "planning/json_fields.hpp"

namespace ringside::cli {

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
    if (event.has("args")) span.about = event.object("args").text("data", "");
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

namespace {

// Times in a file are rounded.
bool is_within(const TracedSpan& inner, const TracedSpan& outer) {
  constexpr double rounding = 1e-9;
  return inner.start >= outer.start - rounding && inner.end <= outer.end + rounding;
}

}  // namespace

StepParts step_parts(const std::vector<RankTrace>& ranks) {
  StepParts parts;
  double steps = 0;
  for (const RankTrace& trace : ranks)
    for (const TracedSpan& step : trace.spans) {
      if (step.kind != Trace::Kind::phase || !step.name.starts_with("step ")) continue;
      ++steps;
      parts.step += step.seconds();
      for (const TracedSpan& span : trace.spans) {
        if (!is_within(span, step)) continue;
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

// The stage of an action's text, "2B3"; that of a run without a pipeline, which has no text, is 0.
int stage_of(const TracedSpan& span) {
  int stage = 0;
  std::from_chars(span.about.data(), span.about.data() + span.about.size(), stage);
  return stage;
}

// The seconds of a span in which its rank does not wait.
double busy_seconds(const RankTrace& trace, const TracedSpan& span) {
  double busy = span.seconds();
  for (const TracedSpan& wait : trace.spans)
    if (wait.kind == Trace::Kind::wait && is_within(wait, span)) busy -= wait.seconds();
  return busy;
}

struct Mean {
  double sum = 0, count = 0;
  void add(double value) { sum += value, ++count; }
  double value() const { return count > 0 ? sum / count : 0; }
};

// What is known of one stage after some of the spans.
struct StageMeans {
  Mean forward, backward, input, weight, optimizer;
};

// Adds what one rank shows. The update is that of all its stages; each gets an equal part.
void add_rank(const RankTrace& trace, std::map<int, StageMeans>& stages) {
  std::set<int> here;
  double update = 0, steps = 0;
  for (const TracedSpan& span : trace.spans) {
    if (span.kind != Trace::Kind::phase) continue;
    const double seconds = busy_seconds(trace, span);
    if (span.name.starts_with("step ")) ++steps;
    if (span.name == "clip" || span.name == "optimizer") update += seconds;
    if (span.name != "forward" && !span.name.starts_with("backward")) continue;
    StageMeans& stage = stages[stage_of(span)];
    here.insert(stage_of(span));
    (span.name == "forward"          ? stage.forward
     : span.name == "backward"       ? stage.backward
     : span.name == "backward input" ? stage.input
                                     : stage.weight)
        .add(seconds);
  }
  for (const int stage : here)
    stages[stage].optimizer.add(update / std::max(1.0, steps) / static_cast<double>(here.size()));
}

}  // namespace

std::vector<planning::MeasuredStage> stages_of_trace(const std::vector<RankTrace>& ranks) {
  std::map<int, StageMeans> stages;
  for (const RankTrace& trace : ranks) add_rank(trace, stages);
  std::vector<planning::MeasuredStage> measured;
  for (const auto& [stage, means] : stages) {
    require(stage == static_cast<int>(measured.size()),
            "the trace shows stage {} but not stage {}: it must be one of all ranks", stage,
            measured.size());
    const double whole = means.backward.value() + means.input.value() + means.weight.value();
    require(means.forward.count > 0 && whole > 0,
            "the trace shows no {} of stage {}: it must be one of `ringside train --trace`",
            means.forward.count > 0 ? "backward" : "forward", stage);
    measured.push_back(
        {means.forward.value(), whole, means.weight.value(), means.optimizer.value()});
  }
  require(!measured.empty(),
          "the trace shows no forward: it must be one of `ringside train --trace`");
  return measured;
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
