// Replaces parallel_openmp.cpp if the compiler has no OpenMP, and in builds with sanitizers: the
// calling thread runs the pieces of a loop one after the other.
#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd {
namespace {

thread_local bool looping = false;

struct Loop {
  Loop() { looping = true; }
  ~Loop() { looping = false; }
};

}  // namespace

bool in_loop() {
  return looping;
}

void parallel_for_pieces(std::int64_t count, std::int64_t grain,
                         const std::function<void(int, std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  const int pieces = pieces_of(count, grain);
  if (pieces == 1) return body(0, 0, count);
  const Loop loop;
  for (int piece = 0; piece < pieces; ++piece)
    body(piece, count * piece / pieces, count * (piece + 1) / pieces);
}

}  // namespace ringside::autograd
