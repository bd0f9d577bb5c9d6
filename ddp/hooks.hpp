// What the forms that listen to backward share: hooks that go when the form goes, and the switch
// that silences them.
#pragma once

#include <utility>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::ddp {

// Hooks on parameters, removed when the list is destroyed.
class HookList {
 public:
  HookList() = default;
  ~HookList() {
    for (const auto& [parameter, id] : hooks_) parameter.remove_hook(id);
  }
  HookList(const HookList&) = delete;
  HookList& operator=(const HookList&) = delete;

  void add(const autograd::Tensor& parameter, autograd::PostAccumulateGradHook hook) {
    hooks_.emplace_back(parameter, parameter.register_post_accumulate_grad_hook(std::move(hook)));
  }

 private:
  std::vector<std::pair<autograd::Tensor, int>> hooks_;
};

// Sets a switch to off for as long as it lives.
class Paused {
 public:
  explicit Paused(bool& on) : on_(on), before_(std::exchange(on, false)) {}
  ~Paused() { on_ = before_; }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  bool& on_;
  bool before_;
};

}  // namespace ringside::ddp
