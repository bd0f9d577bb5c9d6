#include "autograd/engine/checkpointing.hpp"

#include <utility>

#include "autograd/engine/engine.hpp"
#include "autograd/engine/node.hpp"

namespace ringside::autograd {
namespace {

Tensor without_history(const std::function<Tensor(const Tensor&)>& function, const Tensor& x) {
  const NoGrad no_history;
  return function(x).detach();
}

}  // namespace

Tensor checkpoint(std::function<Tensor(const Tensor&)> function, const Tensor& x) {
  if (!is_recorded({x})) return function(x);
  Tensor y = without_history(function, x);
  return record("checkpoint", y, {x},
                [function = std::move(function), x](const Node&, const Tensor& dy) -> Gradients {
                  const EnableGrad history;  // it is off within backward
                  const Tensor input = x.detach().set_requires_grad(true);
                  backward(function(input), dy);
                  return {input.grad()};
                });
}

}  // namespace ringside::autograd
