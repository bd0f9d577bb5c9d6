#include "cli/pictures/report/trace_file.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "cli/pictures/report/traced_steps.hpp"

namespace ringside::cli {
namespace {

using collectives::DataType;
using collectives::ProcessGroup;

double on_own_clock(Clock::time_point time) {
  return Seconds(time.time_since_epoch()).count();
}

// Equal for processes that share a kernel and therefore its monotonic clock.
std::int64_t kernel_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return static_cast<std::int64_t>(std::hash<std::string>{}(id));
}

// What to add to the other rank's clock to get rank 0's. Only these two ranks call it.
double estimate_offset(ProcessGroup& group, int other) {
  constexpr int round_trips = 16;
  double offset = 0, shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < round_trips; ++i) {
    double answer = 0;
    if (group.rank() == 0) {
      group.recv(std::span(&answer, 1), other);
      answer = on_own_clock(Clock::now());
      group.send(std::span(&answer, 1), other);
    } else {
      const double asked = on_own_clock(Clock::now());
      group.send(std::span(&answer, 1), 0);
      group.recv(std::span(&answer, 1), 0);
      const double heard = on_own_clock(Clock::now());
      if (heard - asked < shortest) shortest = heard - asked, offset = answer - (asked + heard) / 2;
    }
  }
  return offset;
}

double offset_to_rank_0(ProcessGroup& group, bool always_estimate) {
  std::vector<std::int64_t> kernels(static_cast<std::size_t>(group.size()));
  const std::int64_t own = kernel_id();
  group.all_gather(std::span(&own, 1), std::span(kernels));
  double offset = 0;
  for (int r = 1; r < group.size(); ++r) {
    const bool same = kernels[static_cast<std::size_t>(r)] == kernels[0];
    if (same && !always_estimate) continue;
    if (group.rank() == 0) estimate_offset(group, r);
    if (group.rank() == r) offset = estimate_offset(group, r);
  }
  return offset;
}

// A rank's trace as text, to be sent to rank 0.
std::string packed(const Trace& trace, double offset) {
  Json spans = Json::array(), messages = Json::array(), memory = Json::array();
  for (const auto& s : trace.spans()) {
    const double queued = s.kind == Trace::Kind::call ? on_own_clock(s.queued) + offset : -1;
    spans.push_back({static_cast<int>(s.track), static_cast<int>(s.kind), s.name, s.about,
                     on_own_clock(s.start) + offset, on_own_clock(s.end) + offset, queued,
                     s.bytes});
  }
  for (const auto& m : trace.memory()) memory.push_back({on_own_clock(m.time) + offset, m.bytes});
  for (const auto& m : trace.messages())
    messages.push_back({m.kind == Trace::Message::sent, m.peer, m.step, m.slice, m.bytes,
                        on_own_clock(m.time) + offset});
  return Json{
      {"spans", spans}, {"messages", messages}, {"memory", memory}, {"kinds", trace.memory_kinds()}}
      .dump();
}

RankTrace unpacked(int rank, const std::string& text) {
  const Json json = Json::parse(text);
  RankTrace trace{.rank = rank, .spans = {}, .memory = {}, .memory_kinds = json.at("kinds")};
  for (const auto& s : json.at("spans"))
    trace.spans.push_back({static_cast<Trace::Track>(s[0].get<int>()),
                           static_cast<Trace::Kind>(s[1].get<int>()), s[2], s[3], s[4], s[5], s[6],
                           s[7]});
  for (const auto& m : json.at("memory")) trace.memory.push_back({m[0], m[1]});
  for (const auto& m : json.at("messages"))
    trace.messages.push_back({m[0], m[1], m[2], m[3], m[4], m[5]});
  std::stable_sort(trace.spans.begin(), trace.spans.end(),
                   [](const TracedSpan& a, const TracedSpan& b) {
                     return a.start != b.start ? a.start < b.start : a.end > b.end;
                   });
  return trace;
}

// Shifts all times so that the earliest on any rank is 0.
void begin_at_zero(std::vector<RankTrace>& ranks) {
  double first = std::numeric_limits<double>::infinity();
  for (const auto& rank : ranks) {
    for (const auto& span : rank.spans)
      first = std::min({first, span.start, span.queued < 0 ? span.start : span.queued});
    for (const auto& memory : rank.memory) first = std::min(first, memory.time);
    for (const auto& message : rank.messages) first = std::min(first, message.time);
  }
  for (auto& rank : ranks) {
    for (auto& span : rank.spans) {
      span.start -= first, span.end -= first;
      if (span.queued >= 0) span.queued -= first;
    }
    for (auto& memory : rank.memory) memory.time -= first;
    for (auto& message : rank.messages) message.time -= first;
  }
}

Json name_event(const char* what, int rank, int track, const Json& arguments) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", track}, {"args", arguments}};
}

Json event_of(const TracedSpan& span, int rank) {
  Json event{{"ph", "X"},
             {"name", span.name},
             {"cat", name_of(span.kind)},
             {"pid", rank},
             {"tid", static_cast<int>(span.track)},
             {"ts", span.start * 1e6},
             {"dur", span.seconds() * 1e6}};
  if (!span.about.empty()) event["args"]["data"] = span.about;
  if (span.kind == Trace::Kind::call) {
    event["args"]["bytes"] = span.bytes;
    event["args"]["queued_us"] = span.queued * 1e6;
  }
  return event;
}

// In these calls each rank needs data of all others: none ends before the last rank has come.
bool needs_all_ranks(const TracedSpan& span) {
  return span.kind == Trace::Kind::call &&
         (span.name == "all_reduce" || span.name == "all_gather" || span.name == "reduce_scatter");
}

// Two flow events with the number `id`, which then is the next. A viewer binds the end to the span
// around its time, so it ends within the span.
void add_arrow(Json& events, int& id, const std::string& name, int from, double begin, int to,
               double end) {
  constexpr double within = 1e-7;  // seconds
  const auto event = [&](const char* phase, int rank, double time) {
    events.push_back({{"ph", phase},
                      {"id", id},
                      {"name", name},
                      {"cat", "arrow"},
                      {"pid", rank},
                      {"tid", static_cast<int>(Trace::Track::communication)},
                      {"ts", time * 1e6},
                      {"bp", "e"}});
  };
  event("s", from, begin);
  event("f", to, end - within);
  ++id;
}

// From the call of the rank that came last to the same call of each other rank.
void add_arrows_of_calls(Json& events, int& id, const std::vector<RankTrace>& ranks) {
  // The calls of the same name and label, in their order, are the same call on all ranks.
  std::map<std::pair<std::string, int>, std::vector<std::pair<int, const TracedSpan*>>> calls;
  for (const auto& trace : ranks) {
    std::map<std::string, int> seen;
    for (const auto& span : trace.spans) {
      if (!needs_all_ranks(span)) continue;
      const std::string name = span.name + " " + span.about;
      calls[{name, seen[name]++}].emplace_back(trace.rank, &span);
    }
  }
  for (const auto& [name, of_ranks] : calls) {
    const auto& [last, begin] = *std::max_element(
        of_ranks.begin(), of_ranks.end(),
        [](const auto& a, const auto& b) { return a.second->start < b.second->start; });
    for (const auto& [rank, span] : of_ranks)
      if (rank != last) add_arrow(events, id, "last to come", last, begin->start, rank, span->end);
  }
}

// The steps of all calls, each as a span on its receiver and an arrow to it.
void add_steps(Json& events, int& id, const std::vector<RankTrace>& ranks) {
  for (const TracedStep& step : traced_steps(ranks)) {
    const std::string name = fmt::format("{} step {}", step.collective, step.step);
    events.push_back({{"ph", "X"},
                      {"name", name},
                      {"cat", "step"},
                      {"pid", step.to},
                      {"tid", static_cast<int>(Trace::Track::communication)},
                      {"ts", step.began * 1e6},
                      {"dur", (step.arrived - step.began) * 1e6},
                      {"args", {{"from_rank", step.from}, {"bytes", step.bytes}}}});
    add_arrow(events, id, name, step.from, step.sent, step.to, step.arrived);
  }
}

}  // namespace

std::vector<RankTrace> gather_traces(const Trace& mine, ProcessGroup& group, bool always_estimate) {
  std::string text = packed(mine, offset_to_rank_0(group, always_estimate));
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> lengths(size);
  const auto own = static_cast<std::int64_t>(text.size());
  group.all_gather(std::span(&own, 1), std::span(lengths));
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  text.resize(longest, ' ');
  std::string all(group.rank() == 0 ? longest * size : 0, ' ');
  group.gather({text.data(), text.size(), DataType::uint8},
               {all.data(), all.size(), DataType::uint8}, 0, "trace");
  std::vector<RankTrace> ranks;
  for (std::size_t r = 0; group.rank() == 0 && r < size; ++r)
    ranks.push_back(unpacked(static_cast<int>(r),
                             all.substr(r * longest, static_cast<std::size_t>(lengths[r]))));
  begin_at_zero(ranks);
  return ranks;
}

Json chrome_trace(const std::vector<RankTrace>& ranks, bool one_group) {
  Json events = Json::array();
  for (const auto& trace : ranks) {
    events.push_back(
        name_event("process_name", trace.rank, 0, {{"name", fmt::format("rank {}", trace.rank)}}));
    events.push_back(name_event("process_sort_index", trace.rank, 0, {{"sort_index", trace.rank}}));
    for (const auto track : {Trace::Track::compute, Trace::Track::communication}) {
      const int number = static_cast<int>(track);
      events.push_back(name_event("thread_name", trace.rank, number, {{"name", name_of(track)}}));
      events.push_back(
          name_event("thread_sort_index", trace.rank, number, {{"sort_index", number}}));
    }
    for (const auto& span : trace.spans) events.push_back(event_of(span, trace.rank));
    for (const auto& memory : trace.memory) {
      Json held;
      for (std::size_t k = 0; k < memory.bytes.size() && k < trace.memory_kinds.size(); ++k)
        held[trace.memory_kinds[k]] = static_cast<double>(memory.bytes[k]) / 1e6;
      events.push_back({{"ph", "C"},
                        {"name", "memory (MB)"},
                        {"pid", trace.rank},
                        {"tid", 0},
                        {"ts", memory.time * 1e6},
                        {"args", held}});
    }
  }
  if (one_group) {
    int arrow = 0;
    add_arrows_of_calls(events, arrow, ranks);
    add_steps(events, arrow, ranks);
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", events}};
}

}  // namespace ringside::cli
