// Threads within one rank: their number, and the loop that uses them.
#pragma once

#include <cstdint>
#include <functional>

namespace ringside::autograd {

// How many threads the ops of the calling thread may use, itself included. Each thread (a rank) has
// its own setting. It is 1 at first, because a machine often runs many ranks; with 1 no thread is
// started. Throws Error if n < 1.
void set_threads(int n);
int threads();

// Divides [0, count) into pieces_of(count, grain) pieces of nearly equal size and calls body(piece,
// begin, end) for each: in parallel if there are at least two grains of work, otherwise once, on
// the calling thread. The pieces depend on count, grain and threads() only, so that equal settings
// give equal bits. Loops within a body run serially. An exception of a body is thrown again on the
// calling thread.
void parallel_for_pieces(
    std::int64_t count, std::int64_t grain,
    const std::function<void(int piece, std::int64_t begin, std::int64_t end)>& body);
int pieces_of(std::int64_t count, std::int64_t grain);
bool in_loop();  // whether the calling thread runs a body

// The same for bodies that do not need the number of their piece. What it passes on is small enough
// that std::function allocates nothing.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
  parallel_for_pieces(count, grain,
                      [&](int, std::int64_t begin, std::int64_t end) { body(begin, end); });
}

}  // namespace ringside::autograd
