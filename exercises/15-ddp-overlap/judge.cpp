// Judges data parallelism that overlaps: by its gradients, and by the order of events, which the
// trace of ProcessGroup tells without the student's help.
#include "exercises/15-ddp-overlap/interface.hpp"
#include "exercises/judge/ddp/data_parallel.hpp"
#include "exercises/judge/ddp/overlap_events.hpp"
#include "exercises/judge/single.hpp"

namespace ringside::exercises {
namespace {

Json collect_gradients(World& world) {
  return train_all_kinds(world, student_overlap);
}

Verdict judge_gradients(const Run& run) {
  return judge_training(run);
}

Json collect_order(World& world) {
  Json seen = {{"steps", events_of_steps(world, student_overlap)},
               {"second backward", ending_of_second_backward(world, student_overlap)}};
  seen["failed step"] = ending_of_failed_step(world, student_overlap);  // the last: ends the group
  return seen;
}

// Backward completes the gradients of the last layer first; each has a call of its own.
ExpectedCalls expected_calls() {
  ExpectedCalls expected;
  for (int layer = LayeredNet::depth - 1; layer >= 0; --layer) {
    expected.before[static_cast<std::size_t>(layer)] = expected.labels.size();
    for (const char* part : {"weight", "bias"})
      expected.labels.push_back(fmt::format("{}.{}", layer, part));
  }
  return expected;
}

Verdict judge_order(const Run& run) {
  Verdict verdict = judge_events(part_of(run, "steps"), expected_calls());
  for (const Verdict& more : {judge_second_backward(part_of(run, "second backward")),
                              judge_failed_step(part_of(run, "failed step"))})
    verdict.says.insert(verdict.says.end(), more.says.begin(), more.says.end());
  return verdict;
}

Json collect_calls(World& world) {
  return calls_of_all_kinds(world, student_overlap);
}

Verdict judge_calls(const Run& run) {
  return judge_calls_of_all_kinds(run, false);
}

// Three micro-batches, the first two under no_sync().
Json collect_no_sync(World& world) {
  return train_all_kinds(world, student_overlap, {.micro_batches = 3});
}

Verdict judge_no_sync(const Run& run) {
  return judge_training(run, {.micro_batches = 3});
}

// What CS336 asks, and what it leaves open. Its nets are in fp32.
template <const auto& kinds>
Verdict judge_cs336_gradients(const Run& run) {
  return judge_training(run, {.nets = {kinds, 4}});
}

Verdict judge_cs336_order(const Run& run) {
  return judge_events(run, expected_calls());
}

Verdict judge_cs336_calls(const Run& run) {
  return judge_calls_of_all_kinds(run, false, {cs336_net_kinds, 4});
}

const Judge judge("15-ddp-overlap",
                  {{"gradients", collect_gradients, judge_gradients},
                   {"order", collect_order, judge_order},
                   {"calls", collect_calls, judge_calls},
                   {"no-sync", collect_no_sync, judge_no_sync},
                   {"weak", collect_gradients, judge_last_weights},
                   {"cs336-gradients", collect_in_torch, judge_cs336_gradients<cs336_net_kinds>},
                   {"cs336-order", collect_in_torch, judge_cs336_order},
                   {"cs336-calls", collect_in_torch, judge_cs336_calls},
                   {"cs336-other-nets", collect_in_torch, judge_cs336_gradients<other_net_kinds>}});

}  // namespace
}  // namespace ringside::exercises
