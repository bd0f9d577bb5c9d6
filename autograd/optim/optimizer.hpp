// Optimizer: updates named parameters, in groups; its state is open to checkpoints and to sharding.
// sgd.hpp and adamw.hpp have the rules.
//
// A parameter is any contiguous leaf with a gradient. It may be a part of a flat buffer, with a
// part of another buffer as its gradient: so ZeRO passes the shard of a rank to an ordinary
// optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

struct ParameterGroup {
  std::vector<NamedTensor> parameters;
  double learning_rate = 1e-3;
  double weight_decay = 0;
};

// One tensor that an optimizer keeps for each parameter.
struct StateEntry {
  std::string name;         // "exp_avg"; the tensor is called "<parameter>.exp_avg"
  bool per_element = true;  // of the parameter's shape; otherwise one number, of shape [1]
  DType dtype = DType::fp32;

  Shape shape_for(const Shape& parameter) const { return per_element ? parameter : Shape{1}; }
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient, in place. The others keep their values and state.
  virtual void step();
  void zero_grad(bool set_to_none = true);

  // Adds parameters, under the rules of the constructor. Their state starts now, at step 0.
  virtual void add_group(ParameterGroup group);

  void set_learning_rate(double learning_rate);  // of all groups

  // The next step, and only that one, multiplies every gradient by `scale` as it reads it. This
  // clips gradients without a pass over memory; the gradients themselves do not change.
  void set_gradient_scale(double scale) { gradient_scale_ = scale; }
  std::vector<ParameterGroup>& groups() { return groups_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }

  // The layout of the state: what state() holds for a parameter of this dtype, in its order.
  //
  //     "exp_avg", ...   per element, in the compute dtype of the parameter
  //     "step"           int32 [1] on the CPU: the number of updates; if there is any entry above
  //     "master"         per element, fp32: the values of a bf16 parameter without rounding. Steps
  //                      are added to it, because bf16 would round small steps away; the parameter
  //                      is the master, rounded
  virtual std::vector<StateEntry> state_layout(DType parameter) const;

  // The state of all parameters in their order, as named tensors "<parameter>.<entry>". It exists
  // from the start: masters hold the parameters, the rest zeros. To load a checkpoint, write into
  // these tensors (copy_).
  virtual std::vector<NamedTensor> state() const;

 protected:
  struct Slot {
    NamedTensor parameter;
    std::vector<NamedTensor>
        state;            // in the order of state_layout(), names without the parameter's
    Tensor step, master;  // the entries of these names; undefined if there are none

    // The bf16 parameter that an update writes beside its master; otherwise undefined.
    Tensor bf16_parameter() const { return master.defined() ? parameter.tensor : Tensor(); }
    // What update() changes: the master or the parameter itself.
    const Tensor& values() const { return master.defined() ? master : parameter.tensor; }
  };

  // `groups` must contain at least one parameter; a parameter that is listed twice, or of int32,
  // throws. `per_element_state` names the state tensors that update() keeps for each element.
  // keep_masters = false makes no fp32 masters of bf16 parameters, for an optimizer that wraps
  // another one.
  Optimizer(std::vector<ParameterGroup> groups, std::vector<std::string> per_element_state,
            bool keep_masters = true);

  // Updates slot.values() of the parameters of a step that are on `device`, from their gradients
  // and slot.state, and rounds the result to slot.bf16_parameter() if there is one: in one pass
  // over memory. slot.step already counts this update.
  struct Update {
    const Slot& slot;
    const ParameterGroup& group;
  };
  virtual void update(Device device, const std::vector<Update>& updates) = 0;

  double gradient_scale() const { return gradient_scale_; }

 private:
  std::vector<ParameterGroup> groups_;
  std::vector<std::vector<Slot>> slots_;  // per group, per parameter
  std::vector<std::string> per_element_state_;
  double gradient_scale_ = 1;
  bool keep_masters_;
};

}  // namespace ringside::autograd
