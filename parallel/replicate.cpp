#include "parallel/replicate.hpp"

#include "base/error.hpp"

namespace ringside::ddp {
namespace {

void* address_of(const autograd::Tensor& tensor, std::string_view label) {
  require(tensor.is_contiguous(),
          "{} is not contiguous in memory: a collective needs its numbers in one piece", label);
  return tensor.address();
}

}  // namespace

collectives::DataType data_type_of(const autograd::Tensor& tensor) {
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
  fail("the collectives do not know the type {}", name_of(tensor.dtype()));
}

void replicate(const autograd::Module& module, collectives::ProcessGroup& group) {
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()})
    for (const auto& [name, tensor] : tensors) broadcast(tensor, 0, group, name);
}

void broadcast(const autograd::Tensor& tensor, int root, collectives::ProcessGroup& group,
               std::string_view label) {
  group.broadcast(address_of(tensor, label), static_cast<std::size_t>(tensor.elements()),
                  data_type_of(tensor), root, label);
}

std::vector<autograd::NamedTensor> trained_parameters(const autograd::Module& module) {
  std::vector<autograd::NamedTensor> trained;
  for (const auto& parameter : module.named_parameters())
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  return trained;
}

void average(const autograd::Tensor& tensor, collectives::ProcessGroup& group,
             std::string_view label) {
  void* data = address_of(tensor, label);
  group.all_reduce(data, data, static_cast<std::size_t>(tensor.elements()), data_type_of(tensor),
                   collectives::ReduceOp::avg, label);
}

collectives::Work average_async(const autograd::Tensor& tensor, collectives::ProcessGroup& group,
                                std::string_view label) {
  void* data = address_of(tensor, label);
  return group.all_reduce_async(data, data, static_cast<std::size_t>(tensor.elements()),
                                data_type_of(tensor), collectives::ReduceOp::avg, label);
}

collectives::Work average_block_async(const autograd::Tensor& whole, const autograd::Tensor& mine,
                                      collectives::ProcessGroup& group, std::string_view label) {
  return group.reduce_scatter_async(address_of(whole, label), address_of(mine, label),
                                    static_cast<std::size_t>(whole.elements()), data_type_of(whole),
                                    collectives::ReduceOp::avg, label);
}

collectives::Work all_gather_async(const autograd::Tensor& mine, const autograd::Tensor& whole,
                                   collectives::ProcessGroup& group, std::string_view label) {
  return group.all_gather_async(address_of(mine, label), address_of(whole, label),
                                static_cast<std::size_t>(whole.elements()), data_type_of(whole),
                                label);
}

}  // namespace ringside::ddp
