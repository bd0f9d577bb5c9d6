// Hooks that tell a parallel method when a gradient is complete, and the guard that pauses it.
#pragma once

#include <utility>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "base/scoped_value.hpp"

namespace ringside::ddp {

// Hooks on the gradients of parameters. The destructor removes them.
class GradientHooks {
 public:
  GradientHooks() = default;
  ~GradientHooks() {
    for (const auto& [parameter, id] : hooks_) parameter.remove_hook(id);
  }
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  void add(const autograd::Tensor& parameter, autograd::PostAccumulateGradHook hook) {
    hooks_.emplace_back(parameter, parameter.register_post_accumulate_grad_hook(std::move(hook)));
  }

 private:
  std::vector<std::pair<autograd::Tensor, int>> hooks_;
};

// What no_sync() returns: a switch is off while it lives.
using Paused = ScopedValue<bool>;

}  // namespace ringside::ddp
