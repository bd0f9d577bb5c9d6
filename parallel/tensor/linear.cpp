#include "parallel/tensor/linear.hpp"

#include <string>

#include "autograd/ops/ops.hpp"
#include "base/error.hpp"
#include "parallel/differentiable.hpp"

namespace ringside::tensor_parallel {

using autograd::Tensor;
using collectives::ProcessGroup;
using parallel::copy_to_group;
using parallel::reduce_from_group;
using parallel::scatter_sequence;

Tensor part_of(const Tensor& whole, std::int64_t dimension, const ProcessGroup& group) {
  const auto size = static_cast<std::size_t>(whole.size(dimension));
  require(size >= static_cast<std::size_t>(group.size()),
          "dimension {} of a tensor {} cannot be divided among {} ranks: take at most {} ranks",
          dimension, whole.shape(), group.size(), size);
  return whole.detach()
      .narrow(dimension, static_cast<std::int64_t>(group.block_begin(size, group.rank())),
              static_cast<std::int64_t>(group.block_size(size, group.rank())))
      .clone();
}

// Forward: every rank has all of x, so its columns of y need nothing from others. Backward: each
// rank knows what its own columns say about x, and f adds this up. W and b are this rank's alone.
Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, ProcessGroup& group,
                     std::string_view label) {
  return linear(copy_to_group(x, group, label), weight, bias);
}

// Forward: each rank's columns of x and of W give a term of every element of y, and g adds the
// terms up. The bias is added after the sum: added to each term, it would count t times. Backward:
// every rank has all of dy, and computes dx of its columns alone.
Tensor row_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, ProcessGroup& group,
                  std::string_view label) {
  const Tensor y = reduce_from_group(linear(x, weight), group, label);
  return bias.defined() ? y + bias : y;
}

// The bias is the same on all ranks but meets other tokens on each, so its gradient is a sum over
// ranks: that is what f does. The weights of norms between the layers have the same need
// (docs/tensor_parallel.md).
Tensor row_linear_of_tokens(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            ProcessGroup& group, std::string_view label) {
  const Tensor y = scatter_sequence(linear(x, weight), group, label);
  return bias.defined() ? y + copy_to_group(bias, group, fmt::format("{}.bias", label)) : y;
}

}  // namespace ringside::tensor_parallel
