// Blocks, and what the exercise counts with. Students get this file whole.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "autograd/tensor/tensor.hpp"

namespace ringside::recomputation {

using autograd::Tensor;

// y = block(x), of one shape. Without history a block saves nothing.
using Block = std::function<Tensor(const Tensor& x)>;

// y = checkpoint(block, x): saves x alone; backward computes the block again.
using Checkpoint = std::function<Tensor(Block block, const Tensor& x)>;

// The blocks one after the other.
inline Tensor through(std::span<const Block> blocks, Tensor x) {
  for (const Block& block : blocks) x = block(x);
  return x;
}

// What a block may keep for backward, or compute again from what comes before it.
struct Activation {
  std::int64_t bytes = 0;
  std::int64_t flops = 0;  // to compute it again
};

}  // namespace ringside::recomputation

namespace student::recomputation {
using namespace ringside::recomputation;
}
