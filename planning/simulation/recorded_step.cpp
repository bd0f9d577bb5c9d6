#include "planning/simulation/recorded_step.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "planning/json_fields.hpp"

namespace ringside::planning {

namespace {

// "pp=1,dp=0" of "rank 2 (pp=1,dp=0)", which name_of() writes.
std::string in_brackets(const std::string& name) {
  const auto open = name.find('(');
  return open == std::string::npos ? "" : name.substr(open + 1, name.find(')') - open - 1);
}

double seconds_in(JsonFields& event, const char* key) {
  return event.number(key, range::not_negative) * 1e-6;
}

TracedSpan span_of(JsonFields& event, const std::string& kind) {
  TracedSpan span;
  span.track = kind == "call" ? Trace::Track::communication : Trace::Track::compute;
  span.kind = kind == "call"    ? Trace::Kind::call
              : kind == "wait"  ? Trace::Kind::wait
              : kind == "phase" ? Trace::Kind::phase
                                : Trace::Kind::op;
  span.name = event.text("name");
  if (event.has("args")) span.about = event.object("args").text("data", "");
  span.start = seconds_in(event, "ts");
  span.end = span.start + seconds_in(event, "dur");
  return span;
}

// What the receiver got in a step of a call: "all_reduce step 3".
TracedMessage message_of(JsonFields& event) {
  TracedMessage message;
  const std::string name = event.text("name");
  std::from_chars(name.data() + name.rfind(' ') + 1, name.data() + name.size(), message.step);
  message.bytes =
      static_cast<std::uint64_t>(event.object("args").number("bytes", range::not_negative));
  message.time = seconds_in(event, "ts") + seconds_in(event, "dur");
  return message;
}

}  // namespace

std::vector<RankTrace> read_traces(const std::filesystem::path& path) {
  const Json json = read_json_file(path);
  JsonFields file(json, path.string() + ": ");
  std::map<int, RankTrace> ranks;
  std::optional<TracedMessage> received;  // until the event after it says who sent it when
  int receiver = 0;
  for (JsonFields& event : file.list("traceEvents")) {
    const auto rank_of_event = [&] {
      const auto rank = static_cast<int>(event.number("pid", range::not_negative));
      ranks[rank].rank = rank;
      return rank;
    };
    const std::string phase = event.text("ph");
    if (phase == "M" && event.text("name", "") == "process_name")
      ranks[rank_of_event()].coordinates = in_brackets(event.object("args").text("name"));
    if (phase == "s" && received) {
      const int sender = rank_of_event();
      received->peer = sender;
      ranks[receiver].messages.push_back(*received);
      received->sent = true, received->peer = receiver, received->time = seconds_in(event, "ts");
      ranks[sender].messages.push_back(*received);
      received.reset();
    }
    if (phase != "X") continue;
    const std::string kind = event.text("cat");
    if (kind == "step") {
      received = message_of(event);
      receiver = rank_of_event();
    } else {
      TracedSpan span = span_of(event, kind);
      ranks[rank_of_event()].spans.push_back(std::move(span));
    }
  }
  std::vector<RankTrace> all;
  for (auto& [rank, trace] : ranks) all.push_back(std::move(trace));
  return all;
}

namespace {

// The part of a step that a span belongs to.
std::string part_of(const TracedSpan& span) {
  if (span.is_step()) return "step";
  const std::string name = class_of(span);
  if (name == "weight") return "backward";
  if (name == "optimizer") return "update";
  return name == "wait" ? "waits" : name;
}

// The stage of an action's text, "2B3"; that of a run without a pipeline, which has no text, is 0.
int stage_of(const TracedSpan& span) {
  int stage = 0;
  std::from_chars(span.about.data(), span.about.data() + span.about.size(), stage);
  return stage;
}

struct Mean {
  double sum = 0, count = 0;
  void add(double value) { sum += value, ++count; }
  double value() const { return count > 0 ? sum / count : 0; }
};

using StageMeans = std::map<std::string, Mean>;  // by the name of the phase

// Adds what one rank shows. The update is that of all its stages; each gets an equal part.
void add_rank(const RankTrace& trace, std::map<int, StageMeans>& stages) {
  std::set<int> here;
  double update = 0, steps = 0;
  for (const TracedSpan& span : trace.spans) {
    const std::string part = part_of(span);
    if (part == "step") ++steps;
    if (part == "update") update += busy_seconds(trace, span);
    if (part != "forward" && part != "backward") continue;
    stages[stage_of(span)][span.name].add(busy_seconds(trace, span));
    here.insert(stage_of(span));
  }
  for (const int stage : here)
    stages[stage]["update"].add(update / std::max(1.0, steps) / static_cast<double>(here.size()));
}

}  // namespace

StepParts step_parts(const std::vector<RankTrace>& ranks) {
  StepParts parts{{"step", 0}, {"forward", 0}, {"backward", 0}, {"update", 0}, {"waits", 0}};
  double steps = 0;
  for (const RankTrace& trace : ranks)
    for (const TracedSpan& step : trace.spans) {
      if (!step.is_step()) continue;
      ++steps;
      const Window window{step.start, step.end};
      for (const TracedSpan& span : trace.spans)
        if (window.contains(span)) parts[part_of(span)] += span.seconds();
    }
  require(steps > 0, "the trace has no whole step: it must be one of `ringside train --trace`");
  for (auto& [part, seconds] : parts) seconds /= steps;
  return parts;
}

std::vector<MeasuredStage> stages_of_trace(const std::vector<RankTrace>& ranks) {
  std::map<int, StageMeans> stages;
  for (const RankTrace& trace : ranks) add_rank(trace, stages);
  std::vector<MeasuredStage> measured;
  for (auto& [stage, means] : stages) {
    require(stage == static_cast<int>(measured.size()),
            "the trace shows stage {} but not stage {}: it must be one of all ranks", stage,
            measured.size());
    const double forward = means["forward"].value(), weight = means["backward weight"].value(),
                 whole = means["backward"].value() + means["backward input"].value() + weight;
    require(forward > 0 && whole > 0,
            "the trace shows no {} of stage {}: it must be one of `ringside train --trace`",
            forward > 0 ? "backward" : "forward", stage);
    measured.push_back({forward, whole, weight, means["update"].value()});
  }
  require(!measured.empty(),
          "the trace shows no forward: it must be one of `ringside train --trace`");
  return measured;
}

}  // namespace ringside::planning
