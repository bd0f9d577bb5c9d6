// Optimizers: SGD and AdamW over named parameters in groups, with their state open to checkpoints
// and to sharding.
//
// A parameter here is any contiguous leaf with a gradient, also a slice of a flat buffer with a
// slice as its gradient: ZeRO hands an optimizer its shard in just this way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autograd/nn/module.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

struct ParameterGroup {
  std::vector<NamedTensor> parameters;
  double learning_rate = 1e-3;
  double weight_decay = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient, in place; the others, and their state, stay as
  // they are.
  virtual void step();
  void zero_grad(bool set_to_none = true);

  // More parameters, under the rules of the constructor; state, step counts and all, begins for
  // them now.
  virtual void add_group(ParameterGroup group);

  void set_learning_rate(double learning_rate);  // of all groups

  // The next step, and only that, takes every gradient as if it were multiplied by this: how
  // gradients are clipped without a pass over memory that writes them. The gradients themselves
  // stay as they are.
  void set_gradient_scale(double scale) { gradient_scale_ = scale; }
  std::vector<ParameterGroup>& groups() { return groups_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }

  // All state as named tensors "<parameter>.<what>", in the order of the parameters; there from the
  // start, all zeros. To load a checkpoint, write into them (copy_). A bf16 parameter has its state
  // in fp32, and a "master": its own numbers in fp32, to which steps are added that bf16 would
  // round away; the parameter is the master, rounded.
  virtual std::vector<NamedTensor> state() const;

 protected:
  struct Slot {
    NamedTensor parameter;
    std::vector<NamedTensor> state;  // names without the parameter's
    Tensor master;                   // of a bf16 parameter: its numbers in fp32; else undefined

    // The bf16 parameter that a device's update rounds its master into; else undefined.
    Tensor kept() const { return master.defined() ? parameter.tensor : Tensor(); }
    // What update() works on: the master, or the parameter itself; and the gradient in the same
    // type.
    const Tensor& values() const { return master.defined() ? master : parameter.tensor; }
    Tensor gradient() const;
  };
  // `groups` must not be empty of parameters, and none may be listed twice or be of integers.
  // `kinds` names the state tensors that every parameter gets, each of its shape and dtype;
  // besides, with any of them, "step", int32 [1] on the CPU, counts the updates of that parameter.
  // Without masters bf16 parameters get none: for an optimizer that has others update.
  Optimizer(std::vector<ParameterGroup> groups, const std::vector<std::string>& kinds,
            bool keeps_masters = true);

  // Updates one parameter: slot.values() from slot.gradient() and slot.state, which has the order
  // of `kinds`, then "step".
  virtual void update(const Slot& slot, const ParameterGroup& group) = 0;

  double gradient_scale() const { return gradient_scale_; }

 private:
  std::vector<ParameterGroup> groups_;
  std::vector<std::vector<Slot>> slots_;  // per group, per parameter
  std::vector<std::string> kinds_;
  double gradient_scale_ = 1;
  bool keeps_masters_;
};

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
};

// g += weight_decay * p;  with momentum: m = momentum * m + g (m = g at first), g = m (nesterov: g
// += momentum * m);  p -= lr * g. As torch.optim.SGD. State, with momentum: "momentum_buffer".
class SGD final : public Optimizer {
 public:
  explicit SGD(std::vector<ParameterGroup> groups, SgdOptions options = {});

 private:
  void update(const Slot& slot, const ParameterGroup& group) override;
  SgdOptions options_;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

// Adam with decoupled weight decay: Loshchilov and Hutter (ICLR 2019), Algorithm 2, with decay
// times the learning rate, as torch does:
//     p -= lr * weight_decay * p;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//     p -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).
// State: "exp_avg" (m), "exp_avg_sq" (v), "step" (t).
class AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<ParameterGroup> groups, AdamWOptions options = {});

 private:
  void update(const Slot& slot, const ParameterGroup& group) override;
  AdamWOptions options_;
};

// --- Clipping by the global norm, in two halves: a sharded form sums the squares over ranks in
// between
// ---------------------------------

// Sum of the squares of all gradients that are there, in fp64.
double grad_norm_squared(std::span<const Tensor> parameters);
void scale_grads(std::span<const Tensor> parameters, double factor);
// What the gradients are multiplied by so that their norm is at most max_norm: min(1, max_norm /
// (norm + 1e-6)), as torch.
double clip_factor(double norm, double max_norm);
// Both halves on one process. Returns the norm before clipping.
double clip_grad_norm(std::span<const Tensor> parameters, double max_norm);

}  // namespace ringside::autograd
