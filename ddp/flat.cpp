#include "ddp/flat.hpp"

#include "base/error.hpp"
#include "ddp/gradient_errors.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::ddp {

using autograd::Tensor;

Flat::Flat(const autograd::Module& module, collectives::ProcessGroup& group)
    : parameters_(trained_parameters(module)), group_(group) {
  replicate(module, group);
  if (parameters_.empty()) return;
  const auto& [first_name, first] = parameters_.front();
  std::int64_t elements = 0;
  for (const auto& [name, parameter] : parameters_) {
    require(parameter.dtype() == first.dtype(),
            "one flat buffer holds one dtype, but {} is {} and {} is {}: use bucketed instead",
            first_name, name_of(first.dtype()), name, name_of(parameter.dtype()));
    require(
        parameter.device() == first.device(),
        "one flat buffer lies on one device, but {} is on {} and {} on {}: use bucketed instead",
        first_name, name_of(first.device()), name, name_of(parameter.device()));
    elements += parameter.elements();
  }
  const autograd::MemoryScope buffer(autograd::MemoryKind::communication);
  flat_ = Tensor::empty({elements}, first.dtype(), first.device());
}

void Flat::finish() {
  const auto view_at = [&](std::int64_t begin, const autograd::Shape& shape) {
    return Tensor::view_of(flat_.storage(), begin, shape, flat_.dtype());
  };

  std::vector<std::string> missing;  // names of the parameters without a gradient
  std::int64_t end = 0;
  for (const auto& [name, parameter] : parameters_) {
    if (!parameter.grad().defined()) {
      missing.push_back(name);
      continue;
    }
    view_at(end, parameter.shape()).copy_(parameter.grad());
    end += parameter.elements();
  }
  if (end == 0) return;

  try {
    all_reduce_mean(view_at(0, {end}), group_, label_without("flat buffer", missing));
  } catch (const Error& error) {
    rethrow_with_names(error, group_.rank(), missing);
  }

  end = 0;
  for (const auto& [name, parameter] : parameters_) {
    if (!parameter.grad().defined()) continue;
    parameter.grad().copy_(view_at(end, parameter.shape()));
    end += parameter.elements();
  }
}

}  // namespace ringside::ddp
