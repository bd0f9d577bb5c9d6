// Judges data parallelism with one call for all gradients.
#include "exercises/14-ddp-flat/interface.hpp"
#include "exercises/judge/ddp/data_parallel.hpp"

namespace ringside::exercises {
namespace {

Json collect_gradients(World& world) {
  return train_all_kinds(world, student_flat);
}
Verdict judge_gradients(const Run& run) {
  return judge_training(run);
}

Json collect_calls(World& world) {
  return calls_of_all_kinds(world, student_flat);
}
Verdict judge_calls(const Run& run) {
  return judge_calls_of_all_kinds(run, true);
}

Json collect_missing(World& world) {
  return error_when_a_gradient_is_missing(world, student_flat);
}
Verdict judge_missing(const Run& run) {
  return judge_missing_gradient(run);
}

const Judge judge("14-ddp-flat", {{"gradients", collect_gradients, judge_gradients},
                                  {"one-call", collect_calls, judge_calls},
                                  {"missing", collect_missing, judge_missing}});

}  // namespace
}  // namespace ringside::exercises
