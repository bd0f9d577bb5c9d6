#include "training/trace/trace_file.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "training/trace/traced_steps.hpp"

namespace ringside::training {
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
  return Json{{"coordinates", trace.coordinates()},
              {"spans", spans},
              {"messages", messages},
              {"memory", memory},
              {"kinds", trace.memory_kinds()}}
      .dump();
}

RankTrace unpacked(int rank, const std::string& text) {
  const Json json = Json::parse(text);
  RankTrace trace{
      .rank = rank, .coordinates = json.at("coordinates"), .memory_kinds = json.at("kinds")};
  for (const auto& s : json.at("spans"))
    trace.spans.push_back({static_cast<Trace::Track>(s[0].get<int>()),
                           static_cast<Trace::Kind>(s[1].get<int>()), s[2], s[3], s[4], s[5], s[6],
                           s[7]});
  for (const auto& m : json.at("memory")) trace.memory.push_back({m[0], m[1]});
  for (const auto& m : json.at("messages"))
    trace.messages.push_back({m[0], m[1], m[2], m[3], m[4], m[5]});
  sort_spans(trace);
  return trace;
}

// Calls f(time) for each time of a trace.
template <class F>
void for_each_time(RankTrace& trace, F f) {
  for (TracedSpan& span : trace.spans) {
    f(span.start), f(span.end);
    if (span.queued >= 0) f(span.queued);
  }
  for (TracedMemory& memory : trace.memory) f(memory.time);
  for (TracedMessage& message : trace.messages) f(message.time);
}

// Shifts all times so that the earliest on any rank is 0.
void begin_at_zero(std::vector<RankTrace>& ranks) {
  double first = std::numeric_limits<double>::infinity();
  for (RankTrace& rank : ranks)
    for_each_time(rank, [&](double time) { first = std::min(first, time); });
  for (RankTrace& rank : ranks) for_each_time(rank, [&](double& time) { time -= first; });
}

// What every event has.
Json event_of(const char* phase, const std::string& name, int rank, Trace::Track track,
              double seconds) {
  return {{"ph", phase},
          {"name", name},
          {"pid", rank},
          {"tid", static_cast<int>(track)},
          {"ts", seconds * 1e6}};
}

// Something that lasts.
Json span_event(const std::string& name, const char* category, int rank, Trace::Track track,
                double begin, double end) {
  Json event = event_of("X", name, rank, track, begin);
  event["cat"] = category;
  event["dur"] = (end - begin) * 1e6;
  return event;
}

Json event_of(const TracedSpan& span, int rank) {
  Json event = span_event(span.name, name_of(span.kind), rank, span.track, span.start, span.end);
  if (!span.about.empty()) event["args"]["data"] = span.about;
  if (span.kind == Trace::Kind::call) {
    event["args"]["bytes"] = span.bytes;
    event["args"]["queued_us"] = span.queued * 1e6;
  }
  return event;
}

void add_names(Json& events, const RankTrace& trace) {
  const auto add = [&](const char* what, Trace::Track track, const Json& arguments) {
    events.push_back(event_of("M", what, trace.rank, track, 0));
    events.back()["args"] = arguments;
  };
  add("process_name", Trace::Track::compute, {{"name", name_of(trace)}});
  add("process_sort_index", Trace::Track::compute, {{"sort_index", trace.rank}});
  for (const auto track : {Trace::Track::compute, Trace::Track::communication}) {
    add("thread_name", track, {{"name", name_of(track)}});
    add("thread_sort_index", track, {{"sort_index", static_cast<int>(track)}});
  }
}

void add_memory(Json& events, const RankTrace& trace) {
  for (const TracedMemory& memory : trace.memory) {
    Json event = event_of("C", "memory (MB)", trace.rank, Trace::Track::compute, memory.time);
    for (std::size_t k = 0; k < memory.bytes.size() && k < trace.memory_kinds.size(); ++k)
      event["args"][trace.memory_kinds[k]] = static_cast<double>(memory.bytes[k]) / 1e6;
    events.push_back(event);
  }
}

// A step of a call: a span on its receiver, and an arrow with this number that leads to it. A
// viewer binds the end of an arrow to the span around its time, so it ends within the step.
void add_step(Json& events, int number, const TracedStep& step) {
  constexpr double within = 1e-7;  // seconds
  constexpr auto track = Trace::Track::communication;
  const std::string name = fmt::format("{} step {}", step.collective, step.step);
  Json span = span_event(name, "step", step.to, track, step.began, step.arrived);
  span["args"] = {{"from_rank", step.from}, {"bytes", step.bytes}};
  events.push_back(span);
  for (Json end : {event_of("s", name, step.from, track, step.sent),
                   event_of("f", name, step.to, track, step.arrived - within)}) {
    end.update({{"id", number}, {"cat", "arrow"}, {"bp", "e"}});
    events.push_back(end);
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

Json chrome_trace(const std::vector<RankTrace>& ranks) {
  Json events = Json::array();
  for (const auto& trace : ranks) {
    add_names(events, trace);
    for (const auto& span : trace.spans) events.push_back(event_of(span, trace.rank));
    add_memory(events, trace);
  }
  int number = 0;
  for (const TracedStep& step : traced_steps(ranks)) add_step(events, number++, step);
  return {{"displayTimeUnit", "ms"}, {"traceEvents", events}};
}

}  // namespace ringside::training
