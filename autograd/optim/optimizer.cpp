#include "autograd/optim/optimizer.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "autograd/kernels/copy.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

Optimizer::Optimizer(std::vector<ParameterGroup> groups, std::vector<std::string> per_element_state,
                     bool keep_masters)
    : per_element_state_(std::move(per_element_state)), keep_masters_(keep_masters) {
  for (ParameterGroup& group : groups) Optimizer::add_group(std::move(group));
  const bool any = std::any_of(groups_.begin(), groups_.end(), [](const ParameterGroup& group) {
    return !group.parameters.empty();
  });
  require(any, "optimizer: expected at least one parameter, got none");
}

std::vector<StateEntry> Optimizer::state_layout(DType parameter) const {
  std::vector<StateEntry> layout;
  for (const std::string& name : per_element_state_)
    layout.push_back({.name = name, .dtype = compute_dtype(parameter)});
  if (!layout.empty()) layout.push_back({"step", false, DType::int32});
  if (keep_masters_ && parameter == DType::bf16) layout.push_back({.name = "master"});
  return layout;
}

void Optimizer::add_group(ParameterGroup group) {
  std::vector<Tensor> seen;
  for (const ParameterGroup& before : groups_)
    for (const NamedTensor& parameter : before.parameters) seen.push_back(parameter.tensor);
  const MemoryScope state(MemoryKind::optimizer_state);
  std::vector<Slot> slots;
  for (const NamedTensor& parameter : group.parameters) {
    const Tensor& p = parameter.tensor;
    require(p.dtype() != DType::int32 && p.is_contiguous(),
            "optimizer: expected '{}' to be contiguous and fp32, fp64 or bf16, got {} {} with "
            "strides {}",
            parameter.name, name_of(p.dtype()), p.shape(), p.strides());
    require(std::none_of(seen.begin(), seen.end(),
                         [&](const Tensor& other) { return other.is_same(p); }),
            "optimizer: '{}' is listed twice; it would be updated twice", parameter.name);
    seen.push_back(p);
    Slot& slot = slots.emplace_back();
    slot.parameter = parameter;
    // The layout of this class: an optimizer that wraps another one declares the other's.
    for (const StateEntry& entry : Optimizer::state_layout(p.dtype())) {
      Tensor tensor;
      if (entry.name == "step")
        tensor = slot.step = Tensor::zeros({1}, entry.dtype);  // the host reads it
      else if (entry.name == "master")
        tensor = slot.master = to_compute_dtype(p);
      else
        tensor = Tensor::zeros(p.shape(), entry.dtype, p.device());
      slot.state.push_back({entry.name, tensor});
    }
  }
  groups_.push_back(std::move(group));
  slots_.push_back(std::move(slots));
}

void Optimizer::step() {
  const NoGrad no_history;
  std::map<Device, std::vector<Update>> on_devices;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const Slot& slot : slots_[g]) {
      const Tensor& parameter = slot.parameter.tensor;
      if (!parameter.grad().defined()) continue;
      if (slot.step.defined()) ++*slot.step.data<std::int32_t>();
      on_devices[parameter.device()].push_back({slot, groups_[g]});
    }
  }
  for (const auto& [device, updates] : on_devices) update(device, updates);
  gradient_scale_ = 1;
}

void Optimizer::zero_grad(bool set_to_none) {
  for (const auto& slots : slots_)
    for (const Slot& slot : slots) slot.parameter.tensor.zero_grad(set_to_none);
}

void Optimizer::set_learning_rate(double learning_rate) {
  for (ParameterGroup& group : groups_) group.learning_rate = learning_rate;
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> all;
  for (const auto& slots : slots_)
    for (const Slot& slot : slots)
      for (const NamedTensor& entry : slot.state)
        all.push_back({slot.parameter.name + "." + entry.name, entry.tensor});
  return all;
}

}  // namespace ringside::autograd
