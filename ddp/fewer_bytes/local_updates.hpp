// Data parallelism that communicates every H steps: each rank updates its own replica, and then the
// ranks take the mean of their parameters.
//
//     steps           1 .. H                 H+1 .. 2H
//     rank 0      theta -> theta_0  |    theta -> theta_0  |       AdamW or SGD, on its own data
//     rank 1      theta -> theta_1  |    theta -> theta_1  |
//                              all-reduce             all-reduce
//
// Local SGD continues from the mean. DiLoCo takes the difference from where the round began as the
// gradient of an outer optimizer, SGD with Nesterov's momentum:
//
//     d = theta - mean(theta_i)       v = mu v + d        theta = theta - lr (d + mu v)
//
// With lr = 1 and mu = 0 this is local SGD. Bytes that a rank sends in a step, on average: those of
// a ring all-reduce of the parameters, divided by H. Memory: a buffer of all parameters; for DiLoCo
// two more.
//
// With H = 1, SGD and no clipping, local SGD is data parallelism, because the mean of the updates
// is the update by the mean. Each rank clips by the norm of its own gradient.
//
// Sources: Stich, "Local SGD converges fast and communicates little", ICLR 2019. Douillard et al.,
// "DiLoCo: distributed low-communication training of language models" (2023), algorithm 1.
#pragma once

#include <functional>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"
#include "ddp/buckets.hpp"

namespace ringside::ddp {

struct OuterStep {
  double learning_rate = 1, momentum = 0;           // these two are local SGD
  static OuterStep diloco() { return {0.7, 0.9}; }  // section 3.1
};

class LocalUpdates {
 public:
  static constexpr int default_steps = 16;

  // Copies the parameters and buffers of rank 0 to all ranks. `module` and `group` must outlive
  // this object. `steps` is H, at least 1. Parameters are fp32 or fp64, on the CPU.
  LocalUpdates(const autograd::Module& module, collectives::ProcessGroup& group,
               int steps = default_steps, const OuterStep& outer = {});

  // Gradients stay those of this rank.
  void finish() {}
  // Every rank calls it after each update of its parameters. The last of a round communicates.
  void after_update();

  // Calls `see` with the mean of the ranks' replicas of each parameter. Every rank calls it. The
  // tensor is valid only during the call.
  void visit_mean(const autograd::Module& module,
                  const std::function<void(const autograd::NamedTensor&)>& see) const;

 private:
  template <class T>
  void take_outer_step();

  collectives::ProcessGroup& group_;
  Bucket bucket_;
  int steps_, taken_ = 0;  // of this round
  OuterStep outer_step_;
  autograd::Tensor flat_;              // the mean, and then the new parameters
  autograd::Tensor begin_, velocity_;  // theta and v of DiLoCo; undefined for local SGD
};

}  // namespace ringside::ddp
