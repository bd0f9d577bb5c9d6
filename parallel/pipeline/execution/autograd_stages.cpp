#include "parallel/pipeline/execution/autograd_stages.hpp"

#include <algorithm>

#include "autograd/engine/engine.hpp"
#include "base/error.hpp"

namespace ringside::pipeline_parallel {

using autograd::DeferredGradients;
using autograd::Tensor;

AutogradStages::AutogradStages(const Schedule& schedule, int rank)
    : schedule_(schedule), rank_(rank) {}

Tensor AutogradStages::forward(int stage, int micro_batch, Tensor input) {
  if (input.defined() && autograd::grad_enabled()) input.set_requires_grad(true);
  const Tensor result = compute(stage, micro_batch, input);
  const bool last = stage == schedule_.stages() - 1;
  if (last) losses_[micro_batch] = result.detach();
  if (result.grad_fn()) {
    kept_[{stage, micro_batch}] = {std::move(input), result.grad_fn(), {}};
    most_held_ = std::max(most_held_, static_cast<int>(kept_.size()));
  }
  return last ? Tensor() : result.contiguous().detach();
}

AutogradStages::Kept& AutogradStages::kept(int stage, int micro_batch, const char* by) {
  const auto found = kept_.find({stage, micro_batch});
  require(found != kept_.end(), "{} of stage {} and micro-batch {} comes before its forward", by,
          stage, micro_batch);
  return found->second;
}

// The gradient of the mean over all micro-batches: the losses are divided by their number here, and
// nowhere else.
void AutogradStages::run_backward(Kept& of, int stage, int micro_batch, Tensor gradient) {
  if (stage == schedule_.stages() - 1) {
    const Tensor& loss = losses_.at(micro_batch);
    gradient = Tensor::scalar(1.0 / schedule_.micro_batches, loss.dtype(), loss.device());
  }
  autograd::backward(of.result, gradient);
  of.result.reset();
}

Tensor AutogradStages::input_gradient(Kept& of) {
  if (!of.input.defined()) return {};
  const Tensor gradient = of.input.grad();
  of.input = {};
  return gradient;
}

Tensor AutogradStages::backward(int stage, int micro_batch, Tensor gradient) {
  Kept& of = kept(stage, micro_batch, "backward");
  const auto guard = may_reduce(stage, micro_batch) ? nullptr : no_sync();
  run_backward(of, stage, micro_batch, std::move(gradient));
  const Tensor result = input_gradient(of);
  kept_.erase({stage, micro_batch});
  return result;
}

Tensor AutogradStages::backward_input(int stage, int micro_batch, Tensor gradient) {
  Kept& of = kept(stage, micro_batch, "the backward of the input");
  const DeferredGradients::Scope scope(of.later);
  run_backward(of, stage, micro_batch, std::move(gradient));
  return input_gradient(of);
}

void AutogradStages::backward_weight(int stage, int micro_batch) {
  Kept& of = kept(stage, micro_batch, "the backward of the weights");
  const auto guard = may_reduce(stage, micro_batch) ? nullptr : no_sync();
  of.later.run();
  kept_.erase({stage, micro_batch});
}

bool AutogradStages::may_reduce(int stage, int micro_batch) const {
  const std::vector<Action>& actions = schedule_.actions[rank_];
  const auto last = std::find_if(actions.rbegin(), actions.rend(), [&](const Action& action) {
    return share_gradients(stage, action.stage) &&
           (action.kind == Kind::backward || action.kind == Kind::backward_weight);
  });
  return last != actions.rend() && last->stage == stage && last->micro_batch == micro_batch;
}

double AutogradStages::take_mean_loss() {
  double sum = 0;
  for (const auto& [micro_batch, loss] : std::exchange(losses_, {})) sum += loss.item();
  return sum / schedule_.micro_batches;
}

}  // namespace ringside::pipeline_parallel
