// Data parallelism, third version: the all-reduce of a gradient starts as soon as the gradient is
// complete, while backward computes those of the layers below.
//
//     backward    | layer 3 | layer 2 | layer 1 |
//     network               | w3, b3  | w2, b2  | w1, b1 |
//                                               ^ finish() waits for the rest
//
// Autograd calls a hook for each parameter, once per backward, after the parameter's last use. The
// cost that remains is the latency of one call for each parameter; bucketed.hpp removes it.
#pragma once

#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"
#include "ddp/gradient_hooks.hpp"
#include "ddp/scoped_work.hpp"

namespace ringside::ddp {

class Overlap {
 public:
  // Copies the parameters and buffers of rank 0 to all ranks, and registers a hook on every trained
  // parameter. `module` and `group` must outlive this object.
  Overlap(const autograd::Module& module, collectives::ProcessGroup& group);

  // Waits until every gradient is the mean over all ranks. Every rank calls it after backward. A
  // parameter without a gradient on every rank stays without one. If only some ranks have a
  // gradient, it throws Error with the parameter's name.
  //
  // Until then a parameter has no gradient while its all-reduce is under way: nothing may add to
  // memory that the all-reduce reads and writes. A second backward without finish() throws Error.
  void finish();

  // While the result lives, backward only accumulates gradients on this rank. Use it for all but
  // the last micro-batch of a step.
  [[nodiscard]] Paused no_sync() { return Paused(synchronizing_, false); }

  // All-reduces started since the last finish().
  int launched() const { return static_cast<int>(under_way_.size()); }

 private:
  struct UnderWay {
    std::size_t parameter;
    autograd::Tensor gradient;
    ScopedWork work;
  };
  void on_gradient(std::size_t i);
  void launch(std::size_t i);

  std::vector<autograd::NamedTensor> parameters_;
  collectives::ProcessGroup& group_;
  bool synchronizing_ = true;
  // [parameter]: complete under no_sync(), and its all-reduce has not started since.
  std::vector<bool> held_;
  // [parameter]: its all-reduce has started since the last finish().
  std::vector<bool> launched_;
  std::vector<UnderWay> under_way_;
  GradientHooks hooks_;  // the last member: destroyed before those that the hooks use
};

}  // namespace ringside::ddp
