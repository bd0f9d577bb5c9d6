// for_each_element: the loop over contiguous elements.
#pragma once

#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd {

// Calls body(i) for 0 .. n-1. `grain` elements are enough work for one more thread. The iterations
// must not depend on each other: the loop is vectorised.
template <class Body>
void for_each_element(std::int64_t n, std::int64_t grain, const Body& body) {
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace ringside::autograd
