#include "ddp/overlap.hpp"

#include "ddp/gradient_errors.hpp"
#include "parallel/replicate.hpp"
#include "parallel/tensor_collectives.hpp"

namespace ringside::ddp {

Overlap::Overlap(const autograd::Module& module, collectives::ProcessGroup& group)
    : parameters_(parallel::trained_parameters(module)),
      group_(group),
      held_(parameters_.size()),
      launched_(parameters_.size()) {
  parallel::replicate(module, group);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    hooks_.add(parameters_[i].tensor, [this, i](const autograd::Tensor&) { on_gradient(i); });
}

// The hook: backward has completed the gradient of parameter i.
void Overlap::on_gradient(std::size_t i) {
  if (launched_[i]) refuse_second_gradient(parameters_[i].name);
  if (synchronizing_)
    launch(i);
  else
    held_[i] = true;
}

void Overlap::launch(std::size_t i) {
  const auto& [name, parameter] = parameters_[i];
  held_[i] = false;
  launched_[i] = true;
  under_way_.push_back(parallel::all_reduce_mean_async(parameter.grad(), group_, name));
}

void Overlap::finish() {
  // Gradients that came from an earlier micro-batch only: the last backward did not reach them.
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (held_[i]) launch(i);
  for (const collectives::Work& work : under_way_) work.wait();
  under_way_.clear();
  launched_.assign(parameters_.size(), false);
}

}  // namespace ringside::ddp
