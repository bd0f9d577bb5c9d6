// ZB-H1: 1F1B with backward in two parts. The stage before waits only for the gradient of the input
// (I). The gradient of the weights (W) can wait, and fills what would be bubble at the end.
//
// Source: Qi, Wan, Huang and Lin, "Zero bubble pipeline parallelism", ICLR 2024 (arXiv:2401.10241),
// section 2.1 and figure 3, where I is called B.
#pragma once

#include <algorithm>
#include <vector>

#include "pipeline_parallel/schedule.hpp"

namespace ringside::pipeline_parallel {

// What `rank` does; rank r holds stage r. Forward and I run in the order of 1F1B. Rank r runs W
// r micro-batches late: then all ranks keep at most `ranks` micro-batches, as rank 0 does under
// 1F1B, and rank r has r of them left to fill the end with.
//
// With at least `ranks` micro-batches, and W not longer than I, rank 0 is idle for
// (ranks-1) (F + I - W), where F, I and W are durations.
inline std::vector<Action> zb_h1(int ranks, int micro_batches, int rank) {
  const int warm_up = std::min(ranks - 1 - rank, micro_batches);
  std::vector<Action> actions;
  int forward = 0, weight = 0;  // the next micro-batch
  while (forward < warm_up) actions.push_back({Kind::forward, rank, forward++});
  for (int i = 0; i < micro_batches; ++i) {
    if (forward < micro_batches) actions.push_back({Kind::forward, rank, forward++});
    actions.push_back({Kind::backward_input, rank, i});
    if (i >= rank) actions.push_back({Kind::backward_weight, rank, weight++});
  }
  while (weight < micro_batches) actions.push_back({Kind::backward_weight, rank, weight++});
  return actions;
}

}  // namespace ringside::pipeline_parallel
