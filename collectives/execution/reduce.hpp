// The arithmetic of a reduction, on memory that may be anywhere: a user's buffer, a socket's
// scratch, a peer's shared pages.
//
// a (op) b and b (op) a have the same bits, whatever a and b: of two ranks that exchange their sums
// and add, both must get the same. For ordinary numbers that holds by itself. Of zeros, -0 is less
// than +0. Where one of the two is not a number, the result is not one either; of the many such,
// addition and multiplication give always the same.
#pragma once

#include <cstddef>

#include "collectives/data_type.hpp"

namespace ringside::collectives {

// into[i] = ours[i] (op) theirs[i] for `count` elements. `into` may be `ours`. avg adds, as sum
// does: see scale_for_avg. fp16 and bf16 are computed in fp32 and rounded (half.hpp); integers wrap
// around.
void combine(DataType type, ReduceOp op, void* into, const void* ours, const void* theirs,
             std::size_t count);

// The second half of avg: data[i] /= ranks, once, when the sum over all ranks is complete. Throws
// Error unless is_floating(type).
void scale_for_avg(DataType type, void* data, std::size_t count, int ranks);

}  // namespace ringside::collectives
