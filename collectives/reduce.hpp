// The arithmetic of a reduction, on memory that may be anywhere: a user's buffer, a socket's scratch, a peer's shared pages.
#pragma once

#include <cstddef>

#include "collectives/data_type.hpp"

namespace ringside::collectives {

// into[i] = ours[i] (op) theirs[i] for `count` elements. `into` may be `ours`. avg adds, as sum does: see scale_for_avg.
void combine(DataType type, ReduceOp op, void* into, const void* ours, const void* theirs, std::size_t count);

// The second half of avg: data[i] /= ranks, once, when the sum over all ranks is complete. Only fp32 and fp64 have an avg.
void scale_for_avg(DataType type, void* data, std::size_t count, int ranks);

}  // namespace ringside::collectives
