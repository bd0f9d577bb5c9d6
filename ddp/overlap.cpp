#include "ddp/overlap.hpp"

#include "ddp/replicate.hpp"

namespace ringside::ddp {

Overlap::Overlap(const autograd::Module& module, collectives::ProcessGroup& group) : group_(group) {
  replicate(module, group);
  for (const auto& [name, parameter] : trained_parameters(module))
    hooks_.add(parameter, [this, name = name](const autograd::Tensor& ready) { on_ready(name, ready); });
}

void Overlap::on_ready(const std::string& name, const autograd::Tensor& parameter) {
  if (synchronising_) under_way_.push_back(average_async(parameter.grad(), group_, name));
}

void Overlap::finish() {
  for (const auto& work : std::exchange(under_way_, {})) work.wait();
}

}  // namespace ringside::ddp
