// Stages that sleep, and what a step of them took: two cores cannot show a bubble with real work.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "collectives/process_group.hpp"
#include "tests/parallel/pipeline/execution/recording_stages.hpp"

namespace ringside::tests {

// Seconds of one stage and micro-batch. A whole backward is input and weight.
struct SleepDurations {
  double forward, input, weight;
  double of(Kind kind) const {
    return kind == Kind::forward           ? forward
           : kind == Kind::backward        ? input + weight
           : kind == Kind::backward_input  ? input
           : kind == Kind::backward_weight ? weight
                                           : 0;
  }
};

// One rank's step.
struct StepTimes {
  double whole = 0;  // from the first start of any rank to the last end of any
  double idle = 0;   // whole, less the computations
  double gaps = 0;   // between the rank's first start and its last end, less the computations
  double late = 0;   // by how much the computations took longer than asked
};

// One step of a schedule. `run_ranks` starts the ranks, each with a group of all. A message has
// `elements` numbers of 4 bytes.
template <class RunRanks>
std::vector<StepTimes> sleep_through(const Schedule& schedule, const SleepDurations& durations,
                                     std::int64_t elements, const RunRanks& run_ranks) {
  std::vector<Trace> traces(schedule.ranks());
  run_ranks([&](collectives::ProcessGroup& group) {
    Messages messages(group);
    RecordingStages work(
        schedule, [&](const Action& action) { sleep_for(durations.of(action.kind)); }, elements);
    Executor executor(schedule, group.rank(), messages, work);
    group.barrier();
    const Trace::On on(traces[group.rank()]);
    executor.run();
  });
  Clock::time_point begin = Clock::time_point::max(), end = Clock::time_point::min();
  std::vector<StepTimes> times;
  for (const Trace& trace : traces) {
    auto first = Clock::time_point::max(), last = Clock::time_point::min();
    double busy = 0, asked = 0;
    for (const Action& action : schedule.actions[times.size()]) asked += durations.of(action.kind);
    for (const Trace::Span& span : trace.spans()) {
      if (span.kind != Trace::Kind::phase || span.name == "reduce gradients") continue;
      first = std::min(first, span.start), last = std::max(last, span.end);
      busy += Seconds(span.end - span.start).count();
    }
    begin = std::min(begin, first), end = std::max(end, last);
    times.push_back(
        {.idle = busy, .gaps = Seconds(last - first).count() - busy, .late = busy - asked});
  }
  for (StepTimes& each : times) {
    each.whole = Seconds(end - begin).count();
    each.idle = each.whole - each.idle;
  }
  return times;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The part of the step by which the sleeps of a rank end too late, of the rank where it is largest.
inline double lateness(const std::vector<StepTimes>& times) {
  double most = 0;
  for (const StepTimes& each : times) most = std::max(most, each.late / each.whole);
  return most;
}

// The part of the step in which a rank is idle, the mean over ranks.
inline double bubble(const std::vector<StepTimes>& times) {
  double sum = 0;
  for (const StepTimes& each : times) sum += each.idle / each.whole;
  return sum / static_cast<double>(times.size());
}

}  // namespace ringside::tests
