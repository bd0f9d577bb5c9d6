// What the judge calls: the student's kernel on the CPU, on random queries, keys and values.
#pragma once

#include <vector>

#include "exercises/judge/autograd/attention.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

struct AttentionRun {
  AttentionShape shape;
  float spread = 4;  // of the queries: the larger, the further apart the scores are
  bool bf16 = false;
  int threads = 1;  // of a block; they take turns (exercises/judge/autograd/block_in_turn.hpp)
  bool last_first = false, copies_at_once = false;
};

// Contiguous: y [B, H, Tq, D], log_sums [B, H, Tq].
struct AttentionOutputs {
  std::vector<float> y, log_sums;
  int strays;  // numbers written behind the last query of a head
  int syncs;   // of each thread of block 0
};

inline Student<AttentionOutputs(const AttentionRun& run, const AttentionTensors& inputs)>
    student_attention_forward;

}  // namespace ringside::exercises
