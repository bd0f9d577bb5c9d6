// ZB-V: two stages per rank, placed as a V, and backward in two parts. The last stage lies on rank
// 0, so rank 0 can start backward as soon as its first micro-batch has been down the V and up
// again. Where F, I and W take equally long, no rank waits between its first and its last action.
//
// Source: Qi, Wan, Huang and Lin, "Zero bubble pipeline parallelism", ICLR 2024 (arXiv:2401.10241),
// section 6, where I is called B.
#pragma once

#include <algorithm>
#include <vector>

#include "pipeline_parallel/schedule.hpp"

namespace ringside::pipeline_parallel {

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
