// Interleaved zero bubble: interleaved 1F1B with backward in two parts, as ZB-H1 is 1F1B with
// backward in two parts. The gradient of the input (I) leaves at once, W fills the end of the step.
//
// Source: Qi, Wan, Huang and Lin, "Zero bubble pipeline parallelism", ICLR 2024 (arXiv:2401.10241),
// section 2.1, on several stages per rank; torch.distributed.pipelining has the same order.
#pragma once

#include <algorithm>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// 4 ranks with 2 stages each, 4 micro-batches, F, I and W take 1. Small letters are the second
// stage of a rank:
//
//     time     0         5         10        15        20        25
//     rank 0   F0F1F2F3f0f1f2f3      i0w0i1w1i2w2i3w3I0W0I1W1I2W2I3W3
//     rank 1     F0F1F2F3f0f1f2    i0f3i1w0i2w1i3w2I0w3I1W0I2W1I3W2W3
//     rank 2       F0F1F2F3f0f1  i0f2i1f3i2w0i3w1I0w2I1w3I2W0I3W1W2W3
//     rank 3         F0F1F2F3f0i0f1i1f2i2f3i3w0I0w1I1w2I2w3I3W0W1W2W3
//
// What `rank` does, placed as loop_placement(ranks, stages_per_rank). micro_batches must be a
// multiple of ranks, and forward and I run in the rounds of interleaved.hpp. But the gradient needs
// half as long to come back, so a rank warms up with one forward more for each rank behind it, not
// two. Rank r runs W r actions late: it has r of them left to fill the end with.
//
// A rank keeps at most stages_per_rank * ranks activations of a stage.
inline std::vector<Action> interleaved_zb(int ranks, int stages_per_rank, int micro_batches,
                                          int rank) {
  const int round = ranks * stages_per_rank;  // forwards of a rank in one round
  const int total = micro_batches * stages_per_rank;
  const int warm_up = std::min((stages_per_rank - 1) * ranks + (ranks - 1 - rank), total);

  std::vector<Action> actions;
  // The n-th forward, I or W of this rank. Rounds go through its stages in order, or in reverse.
  const auto add = [&](Kind kind, int n) {
    const int nth = n % round / ranks;
    const int nth_stage = kind == Kind::forward ? nth : stages_per_rank - 1 - nth;
    actions.push_back({kind, nth_stage * ranks + rank, n / round * ranks + n % ranks});
  };
  for (int n = 0; n < warm_up; ++n) add(Kind::forward, n);
  for (int n = 0; n < total; ++n) {
    if (warm_up + n < total) add(Kind::forward, warm_up + n);
    add(Kind::backward_input, n);
    if (n >= rank) add(Kind::backward_weight, n - rank);
  }
  for (int n = std::max(0, total - rank); n < total; ++n) add(Kind::backward_weight, n);
  return actions;
}

}  // namespace ringside::pipeline_parallel
