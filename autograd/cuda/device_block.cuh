// A block on a GPU (block.hpp), and the launch of a kernel on a stream. Marked as host and device
// because kernels are; on the host nobody runs it.
#pragma once

#include <nv/target>

#include "autograd/cuda/device_tiles.cuh"
#include "autograd/cuda/launch.hpp"
#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

class DeviceBlock {
 public:
  static constexpr int most_warps = 32;

  __host__ __device__ DeviceBlock(std::byte* shared, float* said) : shared_(shared), said_(said) {}

  __host__ __device__ int thread() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return static_cast<int>(threadIdx.x);), (return 0;))
  }
  __host__ __device__ int threads() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return static_cast<int>(blockDim.x);), (return 1;))
  }
  __host__ __device__ std::int64_t index() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return blockIdx.x;), (return 0;))
  }
  __host__ __device__ std::int64_t count() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return gridDim.x;), (return 1;))
  }
  __host__ __device__ void sync() { NV_IF_TARGET(NV_IS_DEVICE, (__syncthreads();)) }

  // First within each warp, by shuffles; then each warp's result through shared memory, which all
  // threads add up in the same order.
  __host__ __device__ float sum(float x) {
    return all(x, [](float a, float b) { return a + b; });
  }
  __host__ __device__ float max(float x) {
    return all(x, [](float a, float b) { return a < b ? b : a; });
  }
  __host__ __device__ std::byte* shared() const { return shared_; }

  __host__ __device__ static float exp(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __expf(x);), (return x;))
  }
  __host__ __device__ static float log(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return logf(x);), (return x;))
  }
  __host__ __device__ static float sqrt(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return sqrtf(x);), (return x;))
  }

  // For kernels of tiles (tiles.hpp).
  template <class T, int m, int n>
  using Product = DeviceProduct<T, m, n>;
  using Group = DeviceGroup;
  __host__ __device__ void copy_later([[maybe_unused]] void* into,
                                      [[maybe_unused]] const void* from) {
    NV_IF_TARGET(NV_IS_DEVICE, (__pipeline_memcpy_async(into, from, 16);))
  }
  __host__ __device__ void end_of_batch() { NV_IF_TARGET(NV_IS_DEVICE, (__pipeline_commit();)) }
  __host__ __device__ void finish_copies([[maybe_unused]] int but) {
    NV_IF_TARGET(NV_IS_DEVICE, (__pipeline_wait_prior(static_cast<unsigned>(but));))
  }

 private:
  template <class Combine>
  __host__ __device__ float all(float x, [[maybe_unused]] const Combine& combine) {
    NV_IF_TARGET(
        NV_IS_DEVICE,
        (for (int distance = 16; distance > 0; distance /= 2) x =
             combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
         const int warps = static_cast<int>(blockDim.x / 32); if (warps == 1) return x;
         if (threadIdx.x % 32 == 0) said_[threadIdx.x / 32] = x; __syncthreads(); x = said_[0];
         for (int warp = 1; warp < warps; ++warp) x = combine(x, said_[warp]); __syncthreads();))
    return x;
  }

  std::byte* shared_;
  float* said_;  // a number of each warp
};
static_assert(Block<DeviceBlock> && TileBlock<DeviceBlock>);

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run(const __grid_constant__ Kernel kernel) {
  static_assert(Kernel::threads % 32 == 0 && Kernel::threads <= 32 * DeviceBlock::most_warps);
  extern __shared__ uint4 shared[];
  __shared__ float said[DeviceBlock::most_warps];
  DeviceBlock block(reinterpret_cast<std::byte*>(shared), said);
  kernel(block);
}

// More than 48 KiB of shared memory must be asked for.
template <class Kernel>
cudaError_t launch(const Kernel& kernel, std::int64_t blocks, cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  const auto shared_bytes = static_cast<int>(kernel.shared_bytes());
  if (shared_bytes > 48 * 1024) {
    const auto result = cudaFuncSetAttribute(
        run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (result != cudaSuccess) return result;
  }
  run<<<static_cast<unsigned>(blocks), Kernel::threads, static_cast<std::size_t>(shared_bytes),
        stream>>>(kernel);
  return cudaGetLastError();
}

}  // namespace ringside::autograd::cuda
