// Collectives on tensors: the calls of ProcessGroup, with the address, count and type of a tensor.
//
// Tensors must be contiguous; otherwise the call throws Error. `label` names the data in errors,
// and all ranks must give the same one (collectives/call.hpp). A call that ends in _async returns
// at once: leave its tensors alone, and keep them alive, until its ScopedWork is done.
#pragma once

#include <string_view>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "ddp/scoped_work.hpp"

namespace ringside::ddp {

// The type of a tensor's elements, as the collectives name it.
collectives::DataType data_type_of(const autograd::Tensor& tensor);

// The tensor's elements, for the calls of ProcessGroup. `label` names the tensor in the error.
collectives::Buffer buffer_of(const autograd::Tensor& tensor, std::string_view label);

// Copies the root's `tensor` into that of every other rank.
void broadcast(const autograd::Tensor& tensor, int root, collectives::ProcessGroup& group,
               std::string_view label);

// Replaces `tensor`, in place, by its mean over all ranks.
void all_reduce_mean(const autograd::Tensor& tensor, collectives::ProcessGroup& group,
                     std::string_view label);
ScopedWork all_reduce_mean_async(const autograd::Tensor& tensor, collectives::ProcessGroup& group,
                                 std::string_view label);

// output = the sum, or the maximum, of the inputs of all ranks. Output may be input.
void all_reduce_sum(const autograd::Tensor& input, const autograd::Tensor& output,
                    collectives::ProcessGroup& group, std::string_view label);
void all_reduce_max(const autograd::Tensor& input, const autograd::Tensor& output,
                    collectives::ProcessGroup& group, std::string_view label);

// Block i of `output` = block rank() of rank i's `input`. Both hold one block of equal size for
// each rank. Output may be input.
void all_to_all(const autograd::Tensor& input, const autograd::Tensor& output,
                collectives::ProcessGroup& group, std::string_view label);

// The two halves of an all-reduce. `whole` holds one block of equal size for each rank, in the
// order of ranks; `block` is one block long, and may be this rank's block of `whole`.
//
// Writes the mean over all ranks of this rank's block of `whole` into `block`.
ScopedWork reduce_scatter_mean_async(const autograd::Tensor& whole, const autograd::Tensor& block,
                                     collectives::ProcessGroup& group, std::string_view label);
// Writes the sum over all ranks of this rank's block of `whole` into `block`.
void reduce_scatter_sum(const autograd::Tensor& whole, const autograd::Tensor& block,
                        collectives::ProcessGroup& group, std::string_view label);
// Collects the `block` of every rank in `whole`.
void all_gather(const autograd::Tensor& block, const autograd::Tensor& whole,
                collectives::ProcessGroup& group, std::string_view label);
ScopedWork all_gather_async(const autograd::Tensor& block, const autograd::Tensor& whole,
                            collectives::ProcessGroup& group, std::string_view label);

}  // namespace ringside::ddp
