#include "autograd/engine/checkpointing.hpp"

#include <utility>

#include "autograd/engine/engine.hpp"
#include "autograd/engine/node.hpp"

namespace ringside::autograd {

Tensor checkpoint(std::function<Tensor(const Tensor&)> function, const Tensor& x) {
  if (!is_recorded({x})) return function(x);
  Tensor y;
  {
    const NoGrad no_history;
    y = function(x).detach();
  }
  return record("checkpoint", y, {x},
                [function = std::move(function), x](const Node&, const Tensor& dy) -> Gradients {
                  const EnableGrad history;  // it is off within backward
                  const Tensor input = x.detach().set_requires_grad(true);
                  backward(function(input), dy);
                  return {input.grad()};
                });
}

}  // namespace ringside::autograd
