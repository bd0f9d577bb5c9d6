// Compiled with the student's files each time that they change.
#include "bounds.cpp"
#include "exercises/27-accounting-4d/interface.hpp"

namespace ringside::exercises {
namespace {

namespace written = student::planning;

// The student's SplitInput is a type of its own, with the same members.
written::SplitInput as_written(const SplitInput& in) {
  return {in.width, in.inner,     in.fsdp,       in.tensor,
          in.peak,  in.bandwidth, in.torus_fsdp, in.torus_tensor};
}
template <auto formula>
Term of_split(const SplitInput& input) {
  return formula(as_written(input));
}
template <auto formula>
Term of_batch(const SplitInput& input, double batch) {
  return formula(as_written(input), batch);
}

[[maybe_unused]] const bool bound =
    student_compute_seconds.bind(of_batch<written::split_compute_seconds>) &&
    student_fsdp_seconds.bind(of_split<written::split_fsdp_seconds>) &&
    student_tensor_seconds.bind(of_batch<written::split_tensor_seconds>) &&
    student_tokens_if_overlapped.bind(of_split<written::tokens_if_overlapped>) &&
    student_tokens_if_added.bind(of_split<written::tokens_if_added>) &&
    student_tokens_at_best_split.bind(of_split<written::tokens_at_best_split>) &&
    student_best_fsdp.bind(of_split<written::best_fsdp>) &&
    student_largest_tensor.bind(of_split<written::largest_tensor>);

}  // namespace
}  // namespace ringside::exercises
