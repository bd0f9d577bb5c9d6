#include "ddp/overlap.hpp"

#include "ddp/gradient_errors.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::ddp {

Overlap::Overlap(const autograd::Module& module, collectives::ProcessGroup& group)
    : parameters_(trained_parameters(module)),
      group_(group),
      held_(parameters_.size()),
      launched_(parameters_.size()) {
  replicate(module, group);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    hooks_.add(parameters_[i].tensor, [this, i](const autograd::Tensor&) { on_gradient(i); });
}

// The hook: backward has completed the gradient of parameter i.
void Overlap::on_gradient(std::size_t i) {
  const auto& [name, parameter] = parameters_[i];
  if (launched_[i]) refuse_second_gradient(name);
  held_[i] = !synchronizing_;
  if (held_[i]) return;
  launched_[i] = true;
  launch(i);
}

// Takes the gradient from the parameter, until finish().
void Overlap::launch(std::size_t i) {
  const auto& [name, parameter] = parameters_[i];
  const autograd::Tensor gradient = parameter.grad();
  parameter.set_grad({});
  under_way_.push_back({i, gradient, all_reduce_mean_async(gradient, group_, name)});
}

void Overlap::finish() {
  // Gradients that came from an earlier micro-batch only: the last backward did not reach them.
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (held_[i]) launch(i);
  for (const UnderWay& call : under_way_) {
    call.work.wait();
    parameters_[call.parameter].tensor.set_grad(call.gradient);
  }
  under_way_.clear();
  held_.assign(parameters_.size(), false);
  launched_.assign(parameters_.size(), false);
}

}  // namespace ringside::ddp
