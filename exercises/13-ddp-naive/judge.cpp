// Judges data parallelism with one call for each gradient, after backward.
#include "exercises/13-ddp-naive/interface.hpp"
#include "exercises/judge/ddp/data_parallel.hpp"

namespace ringside::exercises {
namespace {

Json collect_gradients(World& world) {
  return train_all_kinds(world, student_naive);
}
Verdict judge_gradients(const Run& run) {
  return judge_training(run);
}
Verdict judge_replicas(const Run& run) {
  return judge_start(run);
}

Json collect_calls(World& world) {
  return calls_of_all_kinds(world, student_naive);
}
Verdict judge_calls(const Run& run) {
  return judge_calls_of_all_kinds(run, false);
}

Json collect_missing(World& world) {
  return error_when_a_gradient_is_missing(world, student_naive);
}
Verdict judge_missing(const Run& run) {
  return judge_missing_gradient(run);
}

const Judge judge("13-ddp-naive", {{"replicas", collect_gradients, judge_replicas},
                                   {"gradients", collect_gradients, judge_gradients},
                                   {"calls", collect_calls, judge_calls},
                                   {"missing", collect_missing, judge_missing}});

}  // namespace
}  // namespace ringside::exercises
