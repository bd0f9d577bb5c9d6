// Threads within one rank: how many there are, and the one loop that uses them.
#pragma once

#include <cstdint>

#include "autograd/kernels/function_ref.hpp"

namespace ringside::autograd {

// How many threads the ops of the CALLING thread may use, itself included; 1 at first, for ranks
// are often many to a machine. With 1 no thread is ever started. Each thread that acts as a rank
// has its own setting. Throws Error if n < 1.
void set_threads(int n);
int threads();

// Calls body(piece, begin, end) on pieces that together cover [0, count): in parallel if there is
// work of at least two grains, else once, on the calling thread. There are pieces_of(count, grain)
// of them, as equal as can be; this depends on count, grain and threads() only, so that equal
// settings give equal bits. Within such a body, loops run serially. What a body throws is thrown
// again on the calling thread.
void parallel_for_pieces(std::int64_t count, std::int64_t grain,
                         FunctionRef<void(int piece, std::int64_t begin, std::int64_t end)> body);
int pieces_of(std::int64_t count, std::int64_t grain);

// The same, for bodies that need not know which piece they are.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
  parallel_for_pieces(count, grain,
                      [&](int, std::int64_t begin, std::int64_t end) { body(begin, end); });
}

}  // namespace ringside::autograd
