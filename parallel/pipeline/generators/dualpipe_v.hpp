// DualPipeV: two stages per rank, placed as a V, as in ZB-V. In its steady state a rank runs the
// forward of one stage beside the backward of the other, so that on GPUs the messages of each, and
// the all-to-alls of its experts, travel while the other computes. Only at its ends is backward
// divided into I and W.
//
// Source: DeepSeek-AI, "DeepSeek-V3 technical report" (arXiv:2412.19437), section 3.2.1, on
// DualPipe; its half on a V is by Qi et al. (Sea AI Lab, 2025), who call it cut-in-half. The order
// is that of the eight steps that DeepSeek published in 2025 (github.com/deepseek-ai/DualPipe).
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// 4 ranks, 8 micro-batches, F, I and W take 1, B 2. Capital letters are the stage on the way down,
// small letters the stage on the way up:
//
//     time     0              5              10             15
//     rank 0   F0 F1 F2 F3 F4 F5 F6 f0 i0 w0 f1 i1 w1 f2 i2 w2 f3 F7 b3───
//     rank 1      F0 F1 F2 F3 F4 f0 F5 f1 i0 w0 f2 i1 w1 f3 F6 b2─── f4 B0─
//     rank 2         F0 F1 F2 f0 F3 f1 F4 f2 i0 w0 f3 F5 b1─── f4 B0─── F6
//     rank 3            F0 f0 F1 f1 F2 f2 F3 f3 F4 b0─── f4 B0─── F5 b1───
//
//     time     20             25             30             35
//     rank 0   f4 B0─── b4─── f5    B1─── b5─── f6    B2─── b6─── f7    B3─
//     rank 1   ── F7 b3─── f5 B1─── b4─── f6    B2─── b5─── f7    B3─── b6─
//     rank 2   b2─── f5 B1─── F7 b3─── f6 B2─── b4─── f7    B3─── b5─── B4─
//     rank 3   f5 B1─── F6 b2─── f6 B2─── F7 b3─── f7 B3─── b4─── B4─── b5─
//
//     time     40             45             50
//     rank 0   ── b7─── I4 W4 I5 W5 I6 W6 I7 W7
//     rank 1   ── B4─── i7 I5 w7 I6 W5 I7 W6 W7
//     rank 2   ── b6─── I5 i7 I6 W5 I7 w7 W6 W7
//     rank 3   ── B5─── i6 I6 i7 I7 w6 W6 w7 W7
//
// What `rank` does, placed as v_placement(ranks): it holds stage `rank` on the way down and stage
// 2 ranks - 1 - `rank` on the way up. Here a pair that would overlap runs one after the other,
// forward first.
//
// If F, I and W take equally long, it is idle as long as under ZB-V. It keeps one activation of a
// stage more, 2 ranks + 1, because a pair runs forward before backward.
inline std::vector<Action> dualpipe_v(int ranks, int micro_batches, int rank) {
  const int down = rank, up = 2 * ranks - 1 - rank, behind = ranks - 1 - rank;
  std::vector<Action> actions;
  // The pattern needs 2 ranks micro-batches. With fewer, those that do not exist are left out.
  const int planned = std::max(micro_batches, 2 * ranks);
  struct Next {
    int forward = 0, backward = 0;  // the next micro-batch
  } next_down, next_up;
  std::deque<Action> put_off;  // the W of every I
  const auto add = [&](const Action& action) {
    if (action.micro_batch < micro_batches) actions.push_back(action);
  };
  const auto forward_down = [&] { add({Kind::forward, down, next_down.forward++}); };
  const auto forward_up = [&] { add({Kind::forward, up, next_up.forward++}); };
  const auto backward = [&](int stage, bool divided) {
    const int micro_batch = (stage == down ? next_down : next_up).backward++;
    add({divided ? Kind::backward_input : Kind::backward, stage, micro_batch});
    if (divided) put_off.push_back({Kind::backward_weight, stage, micro_batch});
  };
  const auto weight = [&] {
    if (put_off.empty()) return;
    add(put_off.front());
    put_off.pop_front();
  };

  // Warm-up: down only, then both ways, then the first gradients.
  for (int i = 0; i < 2 * behind; ++i) forward_down();
  for (int i = 0; i < rank + 1; ++i) forward_down(), forward_up();
  for (int i = 0; i < behind; ++i) backward(up, true), weight(), forward_up();
  // Steady state: forward down beside backward up, forward up beside backward down.
  for (int i = 0; i < planned - 2 * ranks + rank + 1; ++i) {
    forward_down(), backward(up, false);
    forward_up(), backward(down, false);
  }
  for (int i = 0; i < behind; ++i) {
    backward(up, false);
    forward_up(), backward(down, false);
  }
  // The end: backward only. Its second half puts off W: the ranks before wait for the gradients.
  for (int i = 0; i < rank + 1; ++i) {
    backward(up, 2 * i >= rank + 1);
    backward(down, 2 * i >= rank);
  }
  for (int i = 0; i < behind; ++i) weight(), backward(down, true);
  while (!put_off.empty()) weight();
  return actions;
}

}  // namespace ringside::pipeline_parallel
