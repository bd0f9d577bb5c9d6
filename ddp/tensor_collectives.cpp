#include "ddp/tensor_collectives.hpp"

#include <array>

#include "base/error.hpp"

namespace ringside::ddp {

using autograd::Tensor;
using collectives::Buffer;
using collectives::ProcessGroup;
using collectives::ReduceOp;

collectives::DataType data_type_of(const Tensor& tensor) {
  using collectives::DataType;
  constexpr std::array types{DataType::fp32, DataType::fp64, DataType::int32, DataType::bf16};
  return types.at(static_cast<std::size_t>(tensor.dtype()));  // in the order of DType
}

Buffer buffer_of(const Tensor& tensor, std::string_view label) {
  require(tensor.is_contiguous(),
          "a collective needs a contiguous tensor, but {} of shape {} has strides {}: call "
          "contiguous() first",
          label, autograd::to_string(tensor.shape()), autograd::to_string(tensor.strides()));
  return {tensor.address(), static_cast<std::size_t>(tensor.elements()), data_type_of(tensor)};
}

void broadcast(const Tensor& tensor, int root, ProcessGroup& group, std::string_view label) {
  group.broadcast(buffer_of(tensor, label), root, label);
}

void all_reduce_mean(const Tensor& tensor, ProcessGroup& group, std::string_view label) {
  group.all_reduce(buffer_of(tensor, label), ReduceOp::avg, label);
}

ScopedWork all_reduce_mean_async(const Tensor& tensor, ProcessGroup& group,
                                 std::string_view label) {
  return group.all_reduce_async(buffer_of(tensor, label), ReduceOp::avg, label);
}

void all_reduce_sum(const Tensor& input, const Tensor& output, ProcessGroup& group,
                    std::string_view label) {
  group.all_reduce(buffer_of(input, label), buffer_of(output, label), ReduceOp::sum, label);
}

void all_reduce_max(const Tensor& input, const Tensor& output, ProcessGroup& group,
                    std::string_view label) {
  group.all_reduce(buffer_of(input, label), buffer_of(output, label), ReduceOp::max, label);
}

void all_to_all(const Tensor& input, const Tensor& output, ProcessGroup& group,
                std::string_view label) {
  group.all_to_all(buffer_of(input, label), buffer_of(output, label), label);
}

void reduce_scatter_sum(const Tensor& whole, const Tensor& block, ProcessGroup& group,
                        std::string_view label) {
  group.reduce_scatter(buffer_of(whole, label), buffer_of(block, label), ReduceOp::sum, label);
}

void all_gather(const Tensor& block, const Tensor& whole, ProcessGroup& group,
                std::string_view label) {
  group.all_gather(buffer_of(block, label), buffer_of(whole, label), label);
}

ScopedWork reduce_scatter_mean_async(const Tensor& whole, const Tensor& block, ProcessGroup& group,
                                     std::string_view label) {
  return group.reduce_scatter_async(buffer_of(whole, label), buffer_of(block, label), ReduceOp::avg,
                                    label);
}

ScopedWork all_gather_async(const Tensor& block, const Tensor& whole, ProcessGroup& group,
                            std::string_view label) {
  return group.all_gather_async(buffer_of(block, label), buffer_of(whole, label), label);
}

}  // namespace ringside::ddp
