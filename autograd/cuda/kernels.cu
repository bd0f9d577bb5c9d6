// Every kernel that is launched, compiled for the GPU.
#include "autograd/cuda/device_block.cuh"
#include "autograd/cuda/kernels/rms_norm.hpp"

namespace ringside::autograd::cuda {

template cudaError_t launch(const RmsNorm<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const RmsNorm<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const RmsNormBackward<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const RmsNormBackward<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SumOfLines<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SumOfLines<Bf16>&, std::int64_t, cudaStream_t);

}  // namespace ringside::autograd::cuda
