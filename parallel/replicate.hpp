// What all forms of data parallelism begin with: the same model on every rank.
//
// Reading order of this room: this file, naive.cpp, flat.cpp, overlap.cpp, buckets.hpp,
// bucket_queue.hpp, bucketed.cpp.
#pragma once

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"

namespace ringside::ddp {

// Every parameter, the frozen ones too, and every buffer becomes, on every rank, what it is on rank
// 0: one broadcast each. Throws Error naming the tensor if the ranks' models do not match.
void replicate(const autograd::Module& module, collectives::ProcessGroup& group);

// The parameters of which gradients are averaged: those that require one, in order of registration,
// tied ones once.
std::vector<autograd::NamedTensor> trained_parameters(const autograd::Module& module);

// The collectives' name for the type of a tensor's elements.
collectives::DataType data_type_of(const autograd::Tensor& tensor);

// Makes `tensor`, on every rank, what it is on the root.
void broadcast(const autograd::Tensor& tensor, int root, collectives::ProcessGroup& group,
               std::string_view label);

// Replaces `tensor`, in place, by its mean over all ranks. `label` is what errors call it.
void average(const autograd::Tensor& tensor, collectives::ProcessGroup& group,
             std::string_view label);

// The same, under way when it returns: leave `tensor` alone until the work is done.
collectives::Work average_async(const autograd::Tensor& tensor, collectives::ProcessGroup& group,
                                std::string_view label);

// The halves of an all-reduce, for zero/. `whole` is as many equal blocks as there are ranks;
// `mine` may be this rank's block of it. The mean over all ranks of this rank's block of `whole`,
// into `mine`:
collectives::Work average_block_async(const autograd::Tensor& whole, const autograd::Tensor& mine,
                                      collectives::ProcessGroup& group, std::string_view label);
// All ranks' `mine`, one after the other, into `whole`:
collectives::Work all_gather_async(const autograd::Tensor& mine, const autograd::Tensor& whole,
                                   collectives::ProcessGroup& group, std::string_view label);

}  // namespace ringside::ddp
