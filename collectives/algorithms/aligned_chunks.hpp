// Chunks that begin and end on cache lines, where that is possible: no line belongs to two chunks,
// so two ranks or threads never write to the same one.
#pragma once

#include "collectives/algorithms/chunks.hpp"

namespace ringside::collectives {

// The unit is 64 bytes if `count` is a whole number of cache lines, at least one for each chunk;
// otherwise an element. For all_reduce, whose caller never sees the chunks.
inline Chunks aligned_chunks(std::size_t count, int chunks, std::size_t element_bytes) {
  const std::size_t line = 64 / element_bytes;
  const bool whole_lines = count % line == 0 && count / line >= static_cast<std::size_t>(chunks);
  return Chunks(count, chunks, whole_lines ? line : 1);
}

}  // namespace ringside::collectives
