// Direct: every rank sends to every other rank what that rank needs, and nothing is forwarded.
//
// ONE-SHOT: every rank receives every other rank's whole buffer and computes the sum itself. If the
// messages travel at the same time, that takes the latency of one message; but each rank sends
// size-1 whole buffers. For very short buffers.
//
// TWO-SHOT: a direct reduce-scatter, then a direct all-gather, with 1/size of the buffer in each
// message. It sends as few bytes as the ring, 2 (size-1)/size of the buffer, with the latency of
// two messages instead of 2 (size-1). But a rank talks to all others, not to two neighbours.
//
// Source: TensorRT-LLM and vLLM call the two one-shot and two-shot in their custom all-reduce. The
// exchange is the "pairwise" algorithm of Thakur, Rabenseifner and Gropp, "Optimization of
// collective communication operations in MPICH", International Journal of High Performance
// Computing Applications 19 (2005), pages 49-66.
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// Afterwards chunk r on rank r holds the sum of all ranks' chunk r. In step s every rank sends to
// rank+s+1.
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
// A rank always sends its own input and never a partial sum, so no send waits for an addition.
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

// Afterwards every rank holds the sum of all ranks' buffers, and has computed it itself. Every rank
// adds in the same order, or the last bits would differ: first rank 0's buffer, then rank 1's, and
// so on. In step s the ranks a and b with a + b = s exchange their inputs; if a = b, the rank takes
// its own. So in each step a rank sends and receives at most one message.
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
