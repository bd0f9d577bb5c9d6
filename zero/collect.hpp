// Whole tensors from the shards of all ranks, one tensor at a time: how a checkpoint is written by
// any number of ranks in the format of a single process.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "zero/shard_layout.hpp"

namespace ringside::zero {

// Called for one whole tensor after the other, on rank 0 only. The tensor lives until it returns.
using SeeTensor = std::function<void(const autograd::NamedTensor& whole)>;
// Called for one whole tensor after the other, on every rank: writes its numbers.
using FillTensor = std::function<void(const autograd::NamedTensor& whole)>;

// Sends every rank's range of a tensor to rank 0. `mine` is this rank's range, [count] elements, or
// undefined if count is 0; `ranges`, [rank], cover the tensor without gaps. The result has `shape`
// on rank 0, and is undefined elsewhere. Every rank must call it.
autograd::Tensor collect(const autograd::Tensor& mine, const std::vector<ShardRange>& ranges,
                         autograd::Shape shape, autograd::DType dtype,
                         collectives::ProcessGroup& group, std::string_view label);

// A view, [count], of a range of a contiguous tensor.
autograd::Tensor view_of_range(const autograd::Tensor& whole, const ShardRange& range);

}  // namespace ringside::zero
