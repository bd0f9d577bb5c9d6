// Replaces autograd/cuda/device_block.cuh on the stand-in: a block is an emulated block of one
// thread.
#pragma once

#include "autograd/kernels/emulated/emulated.hpp"

namespace ringside::autograd::cuda {

template <class Kernel>
void run(const Kernel kernel) {
  EmulatedSharedState state(1, shared_bytes_of(kernel));
  EmulatedBlock block(state, 0, blockIdx.x, gridDim.x);
  kernel(block);
}

}  // namespace ringside::autograd::cuda
