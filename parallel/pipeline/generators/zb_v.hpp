// ZB-V: two stages per rank, placed as a V, and backward in two parts. The last stage lies on rank
// 0, so rank 0 can start backward as soon as its first micro-batch has been down the V and up
// again. Where F, I and W take equally long, no rank waits between its first and its last action.
//
// Source: Qi, Wan, Huang and Lin, "Zero bubble pipeline parallelism", ICLR 2024 (arXiv:2401.10241),
// section 6, where I is called B.
#pragma once

#include <algorithm>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// 4 ranks, 7 micro-batches, F, I and W take 1. Capital letters are the stage on the way down, small
// letters the stage on the way up:
//
//     time     0              5              10             15
//     rank 0   F0 F1 F2 F3 F4 F5 F6 f0 i0 w0 f1 i1 w1 f2 i2 w2 f3 i3 w3 I0
//     rank 1      F0 F1 F2 F3 F4 f0 F5 f1 i0 w0 f2 i1 w1 f3 i2 w2 F6 I0 W0
//     rank 2         F0 F1 F2 f0 F3 f1 F4 f2 i0 w0 f3 i1 w1 F5 I0 W0 f4 i2
//     rank 3            F0 f0 F1 f1 F2 f2 F3 f3 i0 w0 F4 I0 W0 f4 i1 w1 F5
//
//     time     20             25             30             35
//     rank 0   W0 f4 i4 w4 I1 W1 f5 i5 w5 I2 W2 f6 i6 w6 I3 W3 I4 W4 I5 W5
//     rank 1   f4 i3 w3 I1 W1 f5 i4 w4 I2 W2 f6 i5 w5 I3 i6 I4 W3 I5 W4 I6
//     rank 2   w2 F6 I1 W1 f5 i3 w3 I2 W2 f6 i4 w4 I3 i5 I4 i6 I5 W3 I6 W4
//     rank 3   I1 W1 f5 i2 w2 F6 I2 W2 f6 i3 w3 I3 i4 I4 i5 I5 i6 I6 W3 w4
//
//     time     40
//     rank 0   I6 W6
//     rank 1   W5 w6 W6
//     rank 2   w5 w6 W5 W6
//     rank 3   w5 w6 W4 W5 W6
//
// What `rank` does, placed as v_placement(ranks): it holds stage `rank` on the way down and stage
// 2 ranks - 1 - `rank` on the way up.
//
// Every rank keeps at most 2 ranks activations of a stage. As a stage is half as long as under
// 1F1B, that is the memory of rank 0 under 1F1B, on every rank.
inline std::vector<Action> zb_v(int ranks, int micro_batches, int rank) {
  const int down = rank, up = 2 * ranks - 1 - rank;
  std::vector<Action> actions;
  // The pattern below needs 2 ranks - 1 micro-batches. With fewer, it is the pattern with the
  // micro-batches left out that do not exist.
  const int planned = std::max(micro_batches, 2 * ranks - 1);
  struct Next {
    int forward = 0, input = 0, weight = 0;  // the next micro-batch
  } next_down, next_up;
  const auto add = [&](Kind kind, int stage, int micro_batch) {
    if (micro_batch < micro_batches) actions.push_back({kind, stage, micro_batch});
  };
  const auto forward_down = [&] { add(Kind::forward, down, next_down.forward++); };
  const auto forward_up = [&] { add(Kind::forward, up, next_up.forward++); };
  const auto input_down = [&] { add(Kind::backward_input, down, next_down.input++); };
  const auto input_up = [&] { add(Kind::backward_input, up, next_up.input++); };
  const auto weight_down = [&] { add(Kind::backward_weight, down, next_down.weight++); };
  const auto weight_up = [&] { add(Kind::backward_weight, up, next_up.weight++); };

  // Warm-up: forwards down until the first micro-batch comes back up, then both ways in turn.
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) forward_down();
  for (int i = 0; i < rank; ++i) forward_up(), forward_down();
  // The first gradients come down from the last stage; the way up has to be fed.
  for (int i = 0; i < ranks - rank; ++i) forward_up(), input_up(), weight_up();
  // Steady state: all six.
  while (next_down.forward < planned || next_up.forward < planned) {
    if (next_down.forward < planned) forward_down();
    input_down(), weight_down();
    forward_up(), input_up(), weight_up();
  }
  // The end: first the gradients that another rank waits for, then the weights that were put off.
  for (int i = 0; i < rank; ++i) input_down(), input_up();
  for (int i = 0; i < ranks - rank; ++i) input_down(), weight_down();
  while (next_up.weight < planned) weight_up();
  while (next_down.weight < planned) weight_down();
  return actions;
}

}  // namespace ringside::pipeline_parallel
