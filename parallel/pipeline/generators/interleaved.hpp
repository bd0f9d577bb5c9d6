// Interleaved 1F1B: a rank holds several short stages instead of one long stage, so a micro-batch
// reaches the last rank sooner, and the bubble shrinks by the number of stages per rank. In return
// every micro-batch crosses the ranks that many times.
//
// Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
// Megatron-LM", SC 2021, section 2.2.2 and figure 4. The paper calls the stages of a rank model
// chunks or virtual stages.
#pragma once

#include <algorithm>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// 4 ranks with 2 stages each, 4 micro-batches, F takes 1 and B 2. Small letters are the second
// stage of a rank:
//
//     time     0         5         10        15        20        25        30
//     rank 0   F0F1F2F3f0f1f2f3            b0─   b1─   b2─   b3─ B0─ B1─ B2─ B3─
//     rank 1     F0F1F2F3f0f1f2f3      b0─   b1─   b2─   b3─ B0─ B1─ B2─ B3─
//     rank 2       F0F1F2F3f0f1f2  b0─ f3b1─   b2─   b3─ B0─ B1─ B2─ B3─
//     rank 3         F0F1F2F3f0b0─ f1b1─ f2b2─ f3b3─ B0─ B1─ B2─ B3─
//
// What `rank` does, placed as loop_placement(ranks, stages_per_rank). micro_batches must be a
// multiple of ranks.
//
// The rank works in rounds of `ranks` micro-batches: these go through its first stage, then through
// its second, and so on; backward in the same way, from the last stage to the first. The order
// forward is fixed, and so is the order backward. What remains to choose is the warm-up: how many
// forwards come before the first backward.
//
// Rank 0 keeps at most (stages_per_rank+1) ranks - 1 activations of a stage. A rank is idle
// (ranks-1) / (stages_per_rank micro_batches + ranks-1) of the time.
inline std::vector<Action> interleaved(int ranks, int stages_per_rank, int micro_batches,
                                       int rank) {
  const int round = ranks * stages_per_rank;  // forwards of a rank in one round
  const int total = micro_batches * stages_per_rank;
  // All but the last stage of the first round, and two more for each rank behind this one.
  const int warm_up = std::min((stages_per_rank - 1) * ranks + 2 * (ranks - 1 - rank), total);

  std::vector<Action> actions;
  const auto add_forward = [&](int n) {  // the n-th forward of this rank
    const int nth_stage = n % round / ranks;
    actions.push_back({Kind::forward, nth_stage * ranks + rank, n / round * ranks + n % ranks});
  };
  const auto add_backward = [&](int n) {  // the n-th backward
    const int nth_stage = stages_per_rank - 1 - n % round / ranks;
    actions.push_back({Kind::backward, nth_stage * ranks + rank, n / round * ranks + n % ranks});
  };
  for (int n = 0; n < warm_up; ++n) add_forward(n);
  for (int n = 0; n < total; ++n) {
    if (warm_up + n < total) add_forward(warm_up + n);
    add_backward(n);
  }
  return actions;
}

}  // namespace ringside::pipeline_parallel
