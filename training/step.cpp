#include "training/step.hpp"

#include "autograd/optim/clip.hpp"
#include "training/phase.hpp"

namespace ringside::training {

StepNumbers compute_gradients(ParallelStrategy& strategy, const transformer::Model& model,
                              autograd::Optimizer& optimizer,
                              std::span<const transformer::Batch> micro_batches, double clip,
                              const std::function<void(const char*)>& ended) {
  const auto tell = [&](const char* part) {
    if (ended) ended(part);
  };
  const auto phase = [&](const char* name, auto part) {
    in_phase(name, part);
    tell(name);
  };
  StepNumbers step;
  optimizer.zero_grad();
  step.loss = strategy.run_batches(model, micro_batches);
  tell("batches");
  phase("finish gradients", [&] { strategy.finish_gradients(); });
  phase("clip", [&] {
    step.gradient_norm = strategy.gradient_norm(optimizer);
    if (clip > 0) optimizer.set_gradient_scale(autograd::clip_factor(step.gradient_norm, clip));
  });
  return step;
}

StepNumbers take_step(ParallelStrategy& strategy, const transformer::Model& model,
                      autograd::Optimizer& optimizer,
                      std::span<const transformer::Batch> micro_batches, double clip,
                      const std::function<void(const char*)>& ended) {
  const StepNumbers step =
      compute_gradients(strategy, model, optimizer, micro_batches, clip, ended);
  in_phase("optimizer", [&] { strategy.step(optimizer); });
  if (ended) ended("optimizer");
  return step;
}

}  // namespace ringside::training
