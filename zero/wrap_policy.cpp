#include "zero/wrap_policy.hpp"

#include <algorithm>

namespace ringside::zero {

using autograd::Module;
using autograd::NamedModule;
using autograd::NamedTensor;

namespace {

bool is_list_element(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  return !last.empty() && last.find_first_not_of("0123456789") == std::string::npos;
}

Unit& unit_named(const std::string& name, std::vector<Unit>& units) {
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const Unit& unit) { return unit.name == name; });
  return found == units.end() ? units.emplace_back(Unit{name, {}, {}}) : *found;
}

}  // namespace

bool is_within(const std::string& name, const std::string& outer) {
  return outer.empty() || name == outer || name.starts_with(outer + ".");
}

const NamedModule* wrapped_around(const std::string& name,
                                  const std::vector<NamedModule>& wrapped) {
  for (const NamedModule& each : wrapped)
    if (is_within(name, each.name)) return &each;
  return nullptr;
}

std::vector<NamedModule> default_wrap_policy(Module& module) {
  std::vector<NamedModule> wrapped;
  for (const NamedModule& each : module.named_modules()) {
    if (each.name.empty() || wrapped_around(each.name, wrapped)) continue;
    if (is_list_element(each.name) || !each.module->backward_reads_parameters())
      wrapped.push_back(each);
  }
  return wrapped;
}

std::vector<Unit> divide_into_units(const Module& module, const std::vector<NamedModule>& wrapped) {
  const std::vector<NamedTensor> all_names = module.named_parameters(true);
  std::vector<Unit> units;  // in the order of forward, by the first parameter
  for (const NamedTensor& parameter : module.named_parameters()) {
    const NamedModule* const around = wrapped_around(parameter.name, wrapped);
    const bool shared =
        std::any_of(all_names.begin(), all_names.end(), [&](const NamedTensor& other) {
          return other.tensor.is_same(parameter.tensor) &&
                 wrapped_around(other.name, wrapped) != around;
        });
    Unit& unit = unit_named(around && !shared ? around->name : "root", units);
    (parameter.tensor.requires_grad() ? unit.trained : unit.frozen).push_back(parameter);
  }
  std::reverse(units.begin(), units.end());
  return units;
}

}  // namespace ringside::zero
