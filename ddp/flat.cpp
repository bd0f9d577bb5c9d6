#include "ddp/flat.hpp"

#include "base/error.hpp"
#include "parallel/replicate.hpp"

namespace ringside::ddp {

Flat::Flat(const autograd::Module& module, collectives::ProcessGroup& group)
    : parameters_(trained_parameters(module)), group_(group) {
  replicate(module, group);
  if (parameters_.empty()) return;
  std::int64_t elements = 0;
  const auto dtype = parameters_.front().tensor.dtype();
  for (const auto& [name, parameter] : parameters_) {
    require(parameter.dtype() == dtype, "one flat buffer holds one type, but {} is {} and {} is {}",
            parameters_.front().name, name_of(dtype), name, name_of(parameter.dtype()));
    require(parameter.device() == parameters_.front().tensor.device(),
            "one flat buffer lies on one device, but {} is on {} and {} on {}",
            parameters_.front().name, name_of(parameters_.front().tensor.device()), name,
            name_of(parameter.device()));
    elements += parameter.elements();
  }
  const autograd::MemoryScope buffer(autograd::MemoryKind::communication);
  flat_ = autograd::Tensor::empty({elements}, dtype, parameters_.front().tensor.device());
}

void Flat::finish() {
  // What the call is for travels with it: ranks whose gradients differ in kind learn it from each
  // other's labels.
  std::string label = "all gradients";
  std::int64_t end = 0;
  const auto slot = [&](const autograd::Tensor& parameter) {
    const std::int64_t begin = end;
    end += parameter.elements();
    return autograd::Tensor::view_of(flat_.storage(), begin, parameter.shape(), parameter.dtype());
  };
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.grad().defined())
      slot(parameter).copy_(parameter.grad());
    else if (label == "all gradients")
      label = "all gradients without " + name;
  }
  if (end == 0) return;
  average(autograd::Tensor::view_of(flat_.storage(), 0, {end}, flat_.dtype()), group_, label);

  end = 0;
  for (const auto& [name, parameter] : parameters_)
    if (parameter.grad().defined()) parameter.grad().copy_(slot(parameter));
}

}  // namespace ringside::ddp
