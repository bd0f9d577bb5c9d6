// ZB-H1: 1F1B with backward in two parts. The stage before waits only for the gradient of the input
// (I). The gradient of the weights (W) can wait, and fills what would be bubble at the end.
//
// Source: Qi, Wan, Huang and Lin, "Zero bubble pipeline parallelism", ICLR 2024 (arXiv:2401.10241),
// section 2.1 and figure 3, where I is called B.
#pragma once

#include <algorithm>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// 4 ranks, 6 micro-batches, F, I and W take 1:
//
//     time     0              5              10             15             20
//     rank 0   F0 F1 F2 F3          I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5
//     rank 1      F0 F1 F2       I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5
//     rank 2         F0 F1    I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 I5 W3 W4 W5
//     rank 3            F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5
//
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
