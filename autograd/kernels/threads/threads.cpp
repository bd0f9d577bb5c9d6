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

}  // namespace ringside::autograd
