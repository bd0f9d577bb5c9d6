// Direct: everybody sends to everybody what that rank needs, with nobody in between.
//
// ONE-SHOT: every rank gets every other rank's whole buffer and adds them up for itself. One
// message's delay and no more, if the messages travel at the same time; but each rank sends size-1
// whole buffers. For a handful of numbers, where delay is all.
//
// TWO-SHOT: a reduce-scatter and an all-gather, each in the same manner with a p-th of the buffer
// per message. As few bytes as the ring, 2 (size-1)/size of the buffer, in two delays where the
// ring has 2 (size-1); but a rank speaks to all others, not to two.
//
// Source: NVIDIA's TensorRT-LLM and vLLM call the pair one-shot and two-shot in their custom
// all-reduce; the direct exchange itself is the "direct" or "pairwise" algorithm of Thakur,
// Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// International Journal of High Performance Computing Applications 19 (2005), pages 49-66.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards chunk r on rank r holds the sum of all ranks' chunk r. In step s every rank serves the
// one that sits s+1 to its right.
//
//     size 3       chunk 0     chunk 1     chunk 2
//     step 0
//     rank 0       [0+2]       0           0             sends chunk 1 to rank 1
//     rank 1       1           [0+1]       1             sends chunk 2 to rank 2
//     rank 2       2           2           [1+2]         sends chunk 0 to rank 0
//     step 1
//     rank 0       [0+1+2]     0           0             sends chunk 2 to rank 2
//     rank 1       1           [0+1+2]     1             sends chunk 0 to rank 0
//     rank 2       2           2           [0+1+2]       sends chunk 1 to rank 1
//
// What is sent is always a rank's own input, never a sum half done: so nobody waits for anybody
// else's arithmetic.
inline Schedule direct_reduce_scatter(int size, int rank) {
  Schedule schedule{.chunks = size, .steps = {}};
  for (int s = 1; s < size; ++s) {
    const int to = wrap(rank + s, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = to, .chunks = {to}},
        .receive = Receive{.from = wrap(rank - s, size), .chunks = {rank}, .action = Action::add},
    });
  }
  return schedule;
}

// Afterwards every rank holds chunk c of rank c, for every c.
//
//     size 3       chunk 0     chunk 1     chunk 2
//     step 0
//     rank 0       0           .           [2]           sends chunk 0 to rank 1
//     rank 1       [0]         1           .             sends chunk 1 to rank 2
//     rank 2       .           [1]         2             sends chunk 2 to rank 0
//     step 1
//     rank 0       0           [1]         2             sends chunk 0 to rank 2
//     rank 1       0           1           [2]           sends chunk 1 to rank 0
//     rank 2       [0]         1           2             sends chunk 2 to rank 1
inline Schedule direct_all_gather(int size, int rank) {
  Schedule schedule{.chunks = size, .steps = {}};
  for (int s = 1; s < size; ++s) {
    const int from = wrap(rank - s, size);
    schedule.steps.push_back(Step{
        .send = Send{.to = wrap(rank + s, size), .chunks = {rank}},
        .receive = Receive{.from = from, .chunks = {from}, .action = Action::overwrite},
    });
  }
  return schedule;
}

// Afterwards every rank holds the sum of all ranks' buffers.
inline Schedule two_shot_all_reduce(int size, int rank) {
  Schedule schedule = direct_reduce_scatter(size, rank);
  for (const Step& step : direct_all_gather(size, rank).steps) schedule.steps.push_back(step);
  return schedule;
}

// The same, each rank adding up for itself. All must add in the same order, or the last bits
// differ: rank 0's buffer first, then rank 1's, and so on, on every rank. That each rank sends and
// receives one message at most in a step is then a question of who meets whom when: in step s the
// ranks whose numbers add up to s exchange their inputs, a rank whose own number is half of s takes
// its own.
//
//     size 3       step 0     step 1     step 2     step 3     step 4
//     rank 0       0          0+1        0+1+2
//     rank 1                  0          0+1        0+1+2
//     rank 2                             0          0+1        0+1+2
inline Schedule one_shot_all_reduce(int size, int rank) {
  Schedule schedule{.chunks = 1, .steps = {}};
  if (size == 1) return schedule;
  for (int s = 0; s < 2 * size - 1; ++s) {
    const int peer = s - rank;
    Step step;
    if (peer >= 0 && peer < size) {
      step.send = Send{.to = peer, .chunks = {0}, .input = 0};
      step.receive = Receive{
          .from = peer, .chunks = {0}, .action = peer == 0 ? Action::overwrite : Action::add};
    }
    schedule.steps.push_back(step);
  }
  return schedule;
}

}  // namespace ringside::collectives
