// GPipe: all micro-batches forward, then all backward.
//
// Source: Huang et al., "GPipe: Efficient training of giant neural networks using pipeline
// parallelism", NeurIPS 2019, figure 2. The paper draws backward from the last micro-batch to the
// first. Here it runs from the first to the last, so that a stage adds up its gradients in the same
// order as a single process does, to the same bits. The time and the memory are the same.
#pragma once

#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// 4 ranks, 4 micro-batches, F takes 1 and B 2:
//
//     time     0              5              10             15             20
//     rank 0   F0 F1 F2 F3                            B0─── B1─── B2─── B3───
//     rank 1      F0 F1 F2 F3                   B0─── B1─── B2─── B3───
//     rank 2         F0 F1 F2 F3          B0─── B1─── B2─── B3───
//     rank 3            F0 F1 F2 F3 B0─── B1─── B2─── B3───
//
// What `rank` does; rank r holds stage r. It keeps the activations of all micro-batches until their
// backward, and is idle (ranks-1) / (micro_batches+ranks-1) of the time.
inline std::vector<Action> gpipe(int ranks, int micro_batches, int rank) {
  (void)ranks;  // every rank does the same
  std::vector<Action> actions;
  for (int i = 0; i < micro_batches; ++i) actions.push_back({Kind::forward, rank, i});
  for (int i = 0; i < micro_batches; ++i) actions.push_back({Kind::backward, rank, i});
  return actions;
}

}  // namespace ringside::pipeline_parallel
