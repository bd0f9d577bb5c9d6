#include "ddp/naive.hpp"

#include "parallel/replicate.hpp"

namespace ringside::ddp {

Naive::Naive(const autograd::Module& module, collectives::ProcessGroup& group)
    : parameters_(trained_parameters(module)), group_(group) {
  replicate(module, group);
}

void Naive::finish() {
  for (const auto& [name, parameter] : parameters_) {
    if (!parameter.grad().defined())
      continue;  // a rank that does not skip it finds out by the name of the next call
    average(parameter.grad(), group_, name);
  }
}

}  // namespace ringside::ddp
