// Replaces parallel_openmp.cpp if the compiler has no OpenMP, or in a build for ThreadSanitizer:
// every loop runs on the calling thread.
#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

namespace {
thread_local int threads_here = 1;
}

void set_threads(int n) {
  require(n >= 1, "set_threads: expected at least 1, got {}", n);
  threads_here = n;
}

int threads() {
  return threads_here;
}

int pieces_of(std::int64_t, std::int64_t) {
  return 1;
}

void parallel_for_pieces(std::int64_t count, std::int64_t,
                         FunctionRef<void(int, std::int64_t, std::int64_t)> body) {
  if (count > 0) body(0, 0, count);
}

}  // namespace ringside::autograd
