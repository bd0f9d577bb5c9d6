// Looped breadth-first: GPipe with several stages per rank. A rank runs all micro-batches through
// its first stage, then all through its second, and so on; backward in the same way from its last
// stage. So a stage's parameters are used in one stretch forward and one backward, which suits
// sharded parameters: they are gathered twice a step, not twice a micro-batch.
//
// Source: Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys 2023 (arXiv:2211.05953),
// section 3 and figure 3. As in gpipe.hpp, backward runs from the first micro-batch to the last.
#pragma once

#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// 4 ranks with 2 stages each, 4 micro-batches, F takes 1 and B 2. Small letters are the second
// stage of a rank:
//
//     time     0         5         10        15        20        25        30
//     rank 0   F0F1F2F3f0f1f2f3                  b0─ b1─ b2─ b3─ B0─ B1─ B2─ B3─
//     rank 1     F0F1F2F3f0f1f2f3            b0─ b1─ b2─ b3─ B0─ B1─ B2─ B3─
//     rank 2       F0F1F2F3f0f1f2f3      b0─ b1─ b2─ b3─ B0─ B1─ B2─ B3─
//     rank 3         F0F1F2F3f0f1f2f3b0─ b1─ b2─ b3─ B0─ B1─ B2─ B3─
//
// What `rank` does, placed as loop_placement(ranks, stages_per_rank). It keeps the activations of
// all its stages and micro-batches. With at least as many micro-batches as ranks it is idle as long
// as under interleaved 1F1B; with fewer, each stage also waits for the one before.
inline std::vector<Action> looped_bfs(int ranks, int stages_per_rank, int micro_batches, int rank) {
  std::vector<Action> actions;
  for (int nth = 0; nth < stages_per_rank; ++nth)
    for (int i = 0; i < micro_batches; ++i)
      actions.push_back({Kind::forward, nth * ranks + rank, i});
  for (int nth = stages_per_rank - 1; nth >= 0; --nth)
    for (int i = 0; i < micro_batches; ++i)
      actions.push_back({Kind::backward, nth * ranks + rank, i});
  return actions;
}

}  // namespace ringside::pipeline_parallel
