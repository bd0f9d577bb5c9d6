// The arithmetic of a reduction.
//
// a (op) b and b (op) a have the same bits for all a and b: two ranks that exchange their sums and
// add must get the same result. For min and max -0 is less than +0. If a or b is a NaN, the result
// is a NaN; a sum or a product is always the same NaN.
#pragma once

#include <cstddef>

#include "collectives/data_type.hpp"

namespace ringside::collectives {

// into[i] = ours[i] (op) theirs[i] for `count` elements. `into` may be `ours`. avg adds like sum;
// see scale_for_avg. fp16 and bf16 are computed in fp32 and rounded (half.hpp); integers wrap
// around.
void combine(DataType type, ReduceOp op, void* into, const void* ours, const void* theirs,
             std::size_t count);

// The second half of avg: data[i] /= ranks, once the sum over all ranks is complete. Throws Error
// unless is_floating(type).
void scale_for_avg(DataType type, void* data, std::size_t count, int ranks);

}  // namespace ringside::collectives
