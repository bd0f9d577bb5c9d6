// This rank's shards of all parameters, and the flat memory that they are views of.
#pragma once

#include <vector>

#include "zero/collect.hpp"
#include "zero/shard_layout.hpp"

namespace ringside::zero {

// [bucket][entry]: a leaf, [count], that views this rank's range of the parameter; undefined if the
// range is empty. Its gradient is the mean over all ranks of the same range of the gradient.
using ParameterShards = std::vector<std::vector<autograd::Tensor>>;
ParameterShards parameter_shards(const ShardLayout& plan,
                                 const std::vector<autograd::Tensor>& bucket_shards);

// [bucket][entry]
using HasGradient = std::vector<std::vector<bool>>;

// Copies a bucket's parameters, end to end, into new memory, [padded_elements(bucket)], and makes
// them views of it. The padding is zeros.
autograd::Tensor move_into_flat_memory(const ShardLayout& plan, std::size_t bucket);

// Collects every parameter of `named`, in that order, on rank 0, and shows it to `see` there. A
// parameter in no bucket (a frozen one) is whole on every rank already. Every rank must call it.
void visit_parameters(const std::vector<autograd::NamedTensor>& named, const ShardLayout& plan,
                      const ParameterShards& shards, collectives::ProcessGroup& group,
                      const SeeTensor& see);
// The same for the gradients that exist.
void visit_gradients(const std::vector<autograd::NamedTensor>& named, const ShardLayout& plan,
                     const ParameterShards& shards, const HasGradient& has_gradient,
                     collectives::ProcessGroup& group, const SeeTensor& see);

}  // namespace ringside::zero
