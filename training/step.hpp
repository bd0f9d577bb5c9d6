// One training step, from clean gradients to new parameters. The trainer takes it in two parts, and
// `ringside bench` measures it.
#pragma once

#include <functional>
#include <span>

#include "autograd/optim/optimizer.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "transformer/data/batches.hpp"
#include "transformer/model.hpp"

namespace ringside::training {

struct StepNumbers {
  double loss = 0;           // the mean of this rank's micro-batches, before the update
  double gradient_norm = 0;  // of the whole batch, before clipping
};

// All of a step but the update: afterwards strategy.step(optimizer) is due. `clip` is the largest
// norm of all gradients together; 0: no clipping. `ended` is called with the name of each part at
// its end: "batches", "finish gradients", "clip".
StepNumbers compute_gradients(ParallelStrategy& strategy, const transformer::Model& model,
                              autograd::Optimizer& optimizer,
                              std::span<const transformer::Batch> micro_batches, double clip,
                              const std::function<void(const char*)>& ended = {});

// A whole step; the last part is called "optimizer".
StepNumbers take_step(ParallelStrategy& strategy, const transformer::Model& model,
                      autograd::Optimizer& optimizer,
                      std::span<const transformer::Batch> micro_batches, double clip,
                      const std::function<void(const char*)>& ended = {});

}  // namespace ringside::training
