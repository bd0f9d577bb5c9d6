#include "ddp/naive.hpp"

#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::ddp {

Naive::Naive(const autograd::Module& module, collectives::ProcessGroup& group)
    : parameters_(trained_parameters(module)), group_(group) {
  replicate(module, group);
}

void Naive::finish() {
  for (const auto& [name, parameter] : parameters_) {
    // A rank that has this gradient makes a call that this rank skips. Then the labels of the next
    // calls differ, and both ranks throw.
    if (!parameter.grad().defined()) continue;
    all_reduce_mean(parameter.grad(), group_, name);
  }
}

}  // namespace ringside::ddp
