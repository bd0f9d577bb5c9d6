// The compute stream of a thread.
#pragma once

#include "base/cuda.hpp"

namespace ringside::autograd::cuda {

// The calling thread's, on the GPU that is the thread's when it is first asked for. Destroyed with
// the thread.
cudaStream_t compute_stream();

}  // namespace ringside::autograd::cuda
