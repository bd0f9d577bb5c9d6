#include "autograd/nn/module.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringside::autograd {

void Module::check_name(const std::string& name) const {
  require(!name.empty() && name.find('.') == std::string::npos,
          "Module: '{}' is no name: it must not be empty and must not contain a dot", name);
  const auto has_name = [&](const auto& entry) { return entry.first == name; };
  const bool taken = std::any_of(parameters_.begin(), parameters_.end(), has_name) ||
                     std::any_of(buffers_.begin(), buffers_.end(), has_name) ||
                     std::any_of(modules_.begin(), modules_.end(), has_name);
  require(!taken, "Module: the name '{}' is registered already", name);
}

void Module::register_parameter(std::string name, Tensor& member) {
  check_name(name);
  if (member.defined()) {
    member.set_requires_grad(true);
    member.storage()->set_kind(MemoryKind::parameters);
  }
  parameters_.emplace_back(std::move(name), &member);
}

void Module::register_buffer(std::string name, Tensor& member) {
  check_name(name);
  buffers_.emplace_back(std::move(name), &member);
}

void Module::register_module(std::string name, Module& member) {
  check_name(name);
  modules_.emplace_back(std::move(name), &member);
}

void Module::collect(const std::string& prefix, bool buffers, bool recurse,
                     std::vector<NamedTensor>& into) const {
  for (const auto& [name, tensor] : buffers ? buffers_ : parameters_)
    if (tensor->defined()) into.push_back({prefix + name, *tensor});
  if (!recurse) return;
  for (const auto& [name, module] : modules_)
    module->collect(prefix + name + ".", buffers, true, into);
}

std::vector<NamedTensor> Module::named_parameters(bool keep_duplicates, bool recurse) const {
  std::vector<NamedTensor> all, once;
  collect("", false, recurse, all);
  if (keep_duplicates) return all;
  for (NamedTensor& entry : all) {
    const bool seen = std::any_of(once.begin(), once.end(), [&](const NamedTensor& other) {
      return other.tensor.is_same(entry.tensor);
    });
    if (!seen) once.push_back(std::move(entry));
  }
  return once;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> tensors;
  for (NamedTensor& entry : named_parameters()) tensors.push_back(std::move(entry.tensor));
  return tensors;
}

std::vector<NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> all;
  collect("", true, true, all);
  return all;
}

void Module::collect_modules(const std::string& name, std::vector<NamedModule>& into) {
  into.push_back({name, this});
  for (const auto& [child, module] : modules_)
    module->collect_modules(name.empty() ? child : name + "." + child, into);
}

std::vector<NamedModule> Module::named_modules() {
  std::vector<NamedModule> all;
  collect_modules("", all);
  return all;
}

int Module::register_forward_pre_hook(ForwardPreHook hook) {
  forward_pre_hooks_.emplace_back(++last_hook_, std::move(hook));
  return last_hook_;
}

int Module::register_forward_hook(ForwardHook hook) {
  forward_hooks_.emplace_back(++last_hook_, std::move(hook));
  return last_hook_;
}

void Module::remove_forward_hook(int id) {
  const auto is_it = [&](const auto& entry) { return entry.first == id; };
  std::erase_if(forward_pre_hooks_, is_it);
  std::erase_if(forward_hooks_, is_it);
}

void Module::to(Device device) const {
  const NoGrad no_history;
  const auto move = [&](const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& each : tensors) {
      each.tensor.set_grad({});
      each.tensor.set_data(each.tensor.contiguous().to(device));
    }
  };
  const MemoryScope parameters(MemoryKind::parameters);
  move(named_parameters());
  move(named_buffers());
}

void Module::zero_grad(bool set_to_none) const {
  for (const Tensor& parameter : parameters()) parameter.zero_grad(set_to_none);
}

void Module::set_requires_grad(bool value) {
  for (Tensor& parameter : parameters()) parameter.set_requires_grad(value);
}

}  // namespace ringside::autograd
