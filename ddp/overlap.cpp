#include "ddp/overlap.hpp"

#include "parallel/replicate.hpp"

namespace ringside::ddp {

Overlap::Overlap(const autograd::Module& module, collectives::ProcessGroup& group) : group_(group) {
  replicate(module, group);
  for (const auto& [name, parameter] : trained_parameters(module))
    hooks_.add(parameter,
               [this, name = name](const autograd::Tensor& ready) { on_ready(name, ready); });
}

void Overlap::on_ready(const std::string& name, const autograd::Tensor& parameter) {
  std::erase_if(held_back_, [&](const autograd::NamedTensor& held) { return held.name == name; });
  if (synchronising_)
    under_way_.push_back(average_async(parameter.grad(), group_, name));
  else
    held_back_.push_back({name, parameter});
}

void Overlap::finish() {
  for (const auto& [name, parameter] : std::exchange(
           held_back_, {}))  // the last micro-batch gave them no gradient, but another did
    under_way_.push_back(average_async(parameter.grad(), group_, name));
  for (const auto& work : std::exchange(under_way_, {})) work.wait();
}

}  // namespace ringside::ddp
