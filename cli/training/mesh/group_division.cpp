#include "cli/training/mesh/group_division.hpp"

#include "parallel/differentiable.hpp"

namespace ringside::cli {

using autograd::Tensor;

namespace {

constexpr const char* label = "activations";

}  // namespace

Tensor GroupDivision::enter(const Tensor& x) const {
  return divides_sequence() ? parallel::gather_sequence(x, group_, label)
                            : parallel::copy_to_group(x, group_, label);
}

Tensor GroupDivision::leave(const Tensor& partial) const {
  return divides_sequence() ? parallel::scatter_sequence(partial, group_, label)
                            : parallel::reduce_from_group(partial, group_, label);
}

}  // namespace ringside::cli
