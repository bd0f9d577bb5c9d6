// What the judge calls: times of a feed-forward block that is divided over X times Y devices, and
// the batches for which it is bound by computing.
#pragma once

#include "exercises/judge/planning/bounds.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using planning::SplitInput;
using planning::Term;

using TimeOfBatch = Term(const SplitInput& input, double batch);
using TermOfSplit = Term(const SplitInput& input);

inline Student<TimeOfBatch> student_compute_seconds, student_tensor_seconds;
inline Student<TermOfSplit> student_fsdp_seconds, student_tokens_if_overlapped,
    student_tokens_if_added, student_tokens_at_best_split, student_best_fsdp,
    student_largest_tensor;

}  // namespace ringside::exercises
