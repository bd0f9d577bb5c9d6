// The compute stream of each thread.
#pragma once

#include "base/cuda.hpp"

namespace ringside::autograd::cuda {

// The calling thread's stream. The first call creates it, on the thread's current GPU; it is
// destroyed with the thread.
cudaStream_t compute_stream();

}  // namespace ringside::autograd::cuda
