#include "parallel/tensor_collectives.hpp"

#include "base/error.hpp"

namespace ringside::parallel {

using autograd::Tensor;
using collectives::ProcessGroup;
using collectives::ReduceOp;
using collectives::Work;

namespace {

void* address_of(const Tensor& tensor, std::string_view label) {
  require(tensor.is_contiguous(),
          "a collective needs a contiguous tensor, but {} of shape {} has strides {}: call "
          "contiguous() first",
          label, autograd::to_string(tensor.shape()), autograd::to_string(tensor.strides()));
  return tensor.address();
}

std::size_t count_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.elements());
}

}  // namespace

collectives::DataType data_type_of(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case autograd::DType::fp32:
      return collectives::DataType::fp32;
    case autograd::DType::fp64:
      return collectives::DataType::fp64;
    case autograd::DType::int32:
      return collectives::DataType::int32;
    case autograd::DType::bf16:
      return collectives::DataType::bf16;
  }
  fail("the collectives have no type for elements of {}", name_of(tensor.dtype()));
}

void broadcast(const Tensor& tensor, int root, ProcessGroup& group, std::string_view label) {
  group.broadcast(address_of(tensor, label), count_of(tensor), data_type_of(tensor), root, label);
}

void all_reduce_mean(const Tensor& tensor, ProcessGroup& group, std::string_view label) {
  void* data = address_of(tensor, label);
  group.all_reduce(data, data, count_of(tensor), data_type_of(tensor), ReduceOp::avg, label);
}

Work all_reduce_mean_async(const Tensor& tensor, ProcessGroup& group, std::string_view label) {
  void* data = address_of(tensor, label);
  return group.all_reduce_async(data, data, count_of(tensor), data_type_of(tensor), ReduceOp::avg,
                                label);
}

void all_reduce_sum(const Tensor& input, const Tensor& output, ProcessGroup& group,
                    std::string_view label) {
  group.all_reduce(address_of(input, label), address_of(output, label), count_of(input),
                   data_type_of(input), ReduceOp::sum, label);
}

void all_reduce_max(const Tensor& input, const Tensor& output, ProcessGroup& group,
                    std::string_view label) {
  group.all_reduce(address_of(input, label), address_of(output, label), count_of(input),
                   data_type_of(input), ReduceOp::max, label);
}

void all_to_all(const Tensor& input, const Tensor& output, ProcessGroup& group,
                std::string_view label) {
  group.all_to_all(address_of(input, label), address_of(output, label), count_of(input),
                   data_type_of(input), label);
}

void reduce_scatter_sum(const Tensor& whole, const Tensor& block, ProcessGroup& group,
                        std::string_view label) {
  group.reduce_scatter(address_of(whole, label), address_of(block, label), count_of(whole),
                       data_type_of(whole), ReduceOp::sum, label);
}

void all_gather(const Tensor& block, const Tensor& whole, ProcessGroup& group,
                std::string_view label) {
  group.all_gather(address_of(block, label), address_of(whole, label), count_of(whole),
                   data_type_of(whole), label);
}

Work reduce_scatter_mean_async(const Tensor& whole, const Tensor& block, ProcessGroup& group,
                               std::string_view label) {
  return group.reduce_scatter_async(address_of(whole, label), address_of(block, label),
                                    count_of(whole), data_type_of(whole), ReduceOp::avg, label);
}

Work all_gather_async(const Tensor& block, const Tensor& whole, ProcessGroup& group,
                      std::string_view label) {
  return group.all_gather_async(address_of(block, label), address_of(whole, label), count_of(whole),
                                data_type_of(whole), label);
}

Work send_async(const Tensor& tensor, int to, ProcessGroup& group, std::string_view label) {
  return group.send_async(address_of(tensor, label), count_of(tensor), data_type_of(tensor), to,
                          label);
}

void recv(const Tensor& tensor, int from, ProcessGroup& group, std::string_view label) {
  group.recv(address_of(tensor, label), count_of(tensor), data_type_of(tensor), from, label);
}

}  // namespace ringside::parallel
