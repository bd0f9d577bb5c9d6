#include "training/trace/traced_steps.hpp"

#include <algorithm>

namespace ringside::training {
namespace {

// The messages that a rank sent to `peer`, or received from it, in their order.
std::vector<const TracedMessage*> messages_of(const RankTrace& trace, bool sent, int peer) {
  std::vector<const TracedMessage*> messages;
  for (const auto& message : trace.messages)
    if (message.sent == sent && message.peer == peer) messages.push_back(&message);
  return messages;
}

// The steps from one rank to another. Messages between two ranks keep their order, so the nth that
// one received is the nth that the other sent.
void add_steps_between(std::vector<TracedStep>& steps, const RankTrace& from, const RankTrace& to) {
  const auto sends = messages_of(from, true, to.rank), receives = messages_of(to, false, from.rank);
  const TracedMessage* before = nullptr;  // the slice before, of the same step
  for (std::size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
    const TracedMessage& send = *sends[i];
    if (send.step != receives[i]->step) return;  // the traces are not of the same calls
    if (!before || before->step != send.step || before->slice >= send.slice)
      steps.push_back({.step = send.step,
                       .from = from.rank,
                       .to = to.rank,
                       .sent = send.time,
                       .collective = {}});
    steps.back().arrived = receives[i]->time;
    steps.back().bytes += send.bytes;
    before = &send;
  }
}

// In the order of their start.
std::vector<const TracedSpan*> calls_of(const RankTrace& trace) {
  std::vector<const TracedSpan*> calls;
  for (const auto& span : trace.spans)
    if (span.kind == Trace::Kind::call) calls.push_back(&span);
  return calls;
}

}  // namespace

std::vector<TracedStep> traced_steps(const std::vector<RankTrace>& ranks) {
  std::vector<TracedStep> all;
  if (std::ranges::any_of(ranks, [](const RankTrace& r) { return !r.coordinates.empty(); }))
    return all;
  for (const RankTrace& to : ranks) {
    std::vector<TracedStep> steps;
    for (const RankTrace& from : ranks)
      if (from.rank != to.rank) add_steps_between(steps, from, to);
    std::ranges::stable_sort(steps, {}, &TracedStep::arrived);
    const auto calls = calls_of(to);
    double last = 0;
    for (TracedStep& step : steps) {
      const auto after = std::ranges::upper_bound(calls, step.arrived, {}, &TracedSpan::start);
      step.call = static_cast<int>(after - calls.begin()) - 1;
      step.began = step.call < 0 ? step.arrived : std::max(last, calls[step.call]->start);
      if (step.call >= 0) step.collective = calls[step.call]->name;
      last = step.arrived;
    }
    all.insert(all.end(), steps.begin(), steps.end());
  }
  return all;
}

}  // namespace ringside::training
