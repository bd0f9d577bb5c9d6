// Replaces parallel_openmp.cpp if the compiler has no OpenMP, and in builds with sanitizers: the
// calling thread runs the pieces of a loop one after the other.
#include <algorithm>

#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd {
namespace {

thread_local bool in_a_loop = false;

struct Loop {
  Loop() { in_a_loop = true; }
  ~Loop() { in_a_loop = false; }
};

}  // namespace

int pieces_of(std::int64_t count, std::int64_t grain) {
  if (in_a_loop) return 1;
  return static_cast<int>(
      std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, threads()));
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
