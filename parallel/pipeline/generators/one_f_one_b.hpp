// 1F1B, one forward, one backward: a stage runs backward as soon as it can, and so frees
// activations that GPipe would keep.
//
// Source: Narayanan et al., "PipeDream: Generalized pipeline parallelism for DNN training", SOSP
// 2019, for the order; Narayanan et al., "Efficient large-scale language model training on GPU
// clusters using Megatron-LM", SC 2021, section 2.2.1, for the variant with a flush at the end of
// each step, which is this one.
#pragma once

#include <algorithm>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// 4 ranks, 4 micro-batches, F takes 1 and B 2:
//
//     time     0              5              10             15             20
//     rank 0   F0 F1 F2 F3                   B0───    B1───    B2───    B3───
//     rank 1      F0 F1 F2             B0─── F3 B1───    B2───    B3───
//     rank 2         F0 F1       B0─── F2 B1─── F3 B2───    B3───
//     rank 3            F0 B0─── F1 B1─── F2 B2─── F3 B3───
//
// What `rank` does; rank r holds stage r. The first backward can reach the rank only after the
// micro-batch has been to the last stage and back. Until then the rank runs one forward for each
// stage behind it; from then on one forward and one backward in turn.
//
// It keeps the activations of at most ranks-rank micro-batches, however many there are. It is idle
// as long as with GPipe: (ranks-1) / (micro_batches+ranks-1) of the time.
inline std::vector<Action> one_f_one_b(int ranks, int micro_batches, int rank) {
  const int warm_up = std::min(ranks - 1 - rank, micro_batches);
  std::vector<Action> actions;
  int forward = 0, backward = 0;  // the next micro-batch each way
  while (forward < warm_up) actions.push_back({Kind::forward, rank, forward++});
  while (forward < micro_batches) {
    actions.push_back({Kind::forward, rank, forward++});
    actions.push_back({Kind::backward, rank, backward++});
  }
  while (backward < micro_batches) actions.push_back({Kind::backward, rank, backward++});
  return actions;
}

}  // namespace ringside::pipeline_parallel
