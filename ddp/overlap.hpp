// Data parallelism, the third form: each gradient sets out as soon as it is ready, while backward
// computes the ones before it.
//
//     backward    | layer 3 | layer 2 | layer 1 |
//     network               | w3, b3  | w2, b2  | w1, b1 |
//                                               ↑ finish() waits for what is still under way
//
// The hooks of autograd tell when: one fires for each parameter, once in a backward, after its last
// use. What is left to pay is the latency of one call for each parameter; bucketed.hpp mends it.
#pragma once

#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"
#include "ddp/hooks.hpp"

namespace ringside::ddp {

class Overlap {
 public:
  // Makes all ranks' parameters and buffers those of rank 0, and hangs a hook on every parameter
  // that is trained. `module` and `group` must outlive this.
  Overlap(const autograd::Module& module, collectives::ProcessGroup& group);

  // Call after backward, on every rank: waits until every gradient is the mean over all ranks. A
  // parameter that got no gradient on any rank stays without one; one that got a gradient on some
  // ranks only is an Error that names it.
  void finish();

  // While the result lives, backward only adds gradients up, on this rank: for all but the last
  // micro-batch of a step.
  [[nodiscard]] Paused no_sync() { return Paused(synchronising_); }

  int launched() const {
    return static_cast<int>(under_way_.size());
  }  // calls started since the last finish()

 private:
  void on_ready(const std::string& name, const autograd::Tensor& parameter);

  collectives::ProcessGroup& group_;
  bool synchronising_ = true;
  std::vector<autograd::NamedTensor> held_back_;  // ready under no_sync(), and not again since
  std::vector<collectives::Work> under_way_;
  HookList hooks_;  // last: they go before what they use
};

}  // namespace ringside::ddp
