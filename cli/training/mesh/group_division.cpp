#include "cli/training/mesh/group_division.hpp"

#include "parallel/differentiable.hpp"
#include "parallel/tensor_collectives.hpp"

namespace ringside::cli {

using autograd::Tensor;
using collectives::ReduceOp;

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

void GroupDivision::max_over_ranks(const Tensor& numbers) const {
  group_.all_reduce(numbers.address(), numbers.address(),
                    static_cast<std::size_t>(numbers.elements()), parallel::data_type_of(numbers),
                    ReduceOp::max, "largest logits");
}

void GroupDivision::sum_over_ranks(const Tensor& numbers) const {
  group_.all_reduce(numbers.address(), numbers.address(),
                    static_cast<std::size_t>(numbers.elements()), parallel::data_type_of(numbers),
                    ReduceOp::sum, "sums of the logits");
}

}  // namespace ringside::cli
