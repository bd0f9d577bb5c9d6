// The thread block of a GPU (block.hpp). Its functions are __host__ __device__ because kernels are;
// the host never calls them.
#pragma once

#include <nv/target>

#include "autograd/cuda/device_tiles.cuh"
#include "autograd/cuda/launch.hpp"
#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

inline constexpr int max_warps = 32;  // of a block

// The number of threads is part of the type for kernels of tiles: so the compiler unrolls their
// loops over rows. Others would have too few registers for that.
template <int block_threads>
class DeviceBlock {
 public:
  static_assert(block_threads % 32 == 0 && block_threads <= 32 * max_warps);

  __host__ __device__ DeviceBlock(std::byte* shared, float* scratch)
      : shared_(shared), scratch_(scratch) {}

  __host__ __device__ int thread() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE,
                      (const int x = static_cast<int>(threadIdx.x);
                       __builtin_assume(x >= 0 && x < block_threads); return x;),
                      (return 0;))
  }
  __host__ __device__ constexpr int threads() const {
    if constexpr (block_threads == tile_threads)
      return block_threads;
    else
      NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return static_cast<int>(blockDim.x);), (return 1;))
  }
  __host__ __device__ std::int64_t index() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return blockIdx.x;), (return 0;))
  }
  __host__ __device__ std::int64_t count() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return gridDim.x;), (return 1;))
  }
  __host__ __device__ void sync() { NV_IF_TARGET(NV_IS_DEVICE, (__syncthreads();)) }

  // Reduces within each warp by shuffles. Then all threads reduce the results of the warps, through
  // shared memory and in the same order.
  __host__ __device__ float sum(float x) {
    return reduce(x, [](float a, float b) { return a + b; });
  }
  __host__ __device__ float max(float x) {
    return reduce(x, [](float a, float b) { return larger(a, b); });
  }
  __host__ __device__ std::byte* shared() const { return shared_; }

  __host__ __device__ static float exp(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __expf(x);), (return x;))
  }
  // One instruction. exp2f() takes three, for results below 2^-126, which are 0 here.
  __host__ __device__ static float exp2([[maybe_unused]] float x) {
    NV_IF_TARGET(NV_IS_DEVICE, (asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(x));))
    return x;
  }
  __host__ __device__ static float log(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return logf(x);), (return x;))
  }
  __host__ __device__ static float sqrt(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return sqrtf(x);), (return x;))
  }
  // One instruction, where a comparison and a choice are two.
  __host__ __device__ static float larger(float a, float b) { return fmaxf(a, b); }

  // All threads of the block, as a row group.
  template <int threads>
  class AllThreads {
   public:
    static constexpr int size = threads;
    // constexpr, as in every type of which a kernel has variables: otherwise the kernel is not
    // constexpr, and nvcc leaves its call out without a word.
    __host__ __device__ constexpr explicit AllThreads(DeviceBlock& block) : block_(block) {}
    __host__ __device__ int index() const { return block_.thread(); }
    __host__ __device__ int count() const { return size; }
    __host__ __device__ float sum(float x) const { return block_.sum(x); }
    __host__ __device__ float max(float x) const { return block_.max(x); }

   private:
    DeviceBlock& block_;
  };

  // For kernels that use tiles (tiles.hpp).
  template <class T, int m, int n>
  using Accumulator = DeviceAccumulator<T, m, n>;
  template <int size>
  using RowGroup = std::conditional_t<size <= 32, DeviceRowGroup<size>, AllThreads<size>>;
  __host__ __device__ void copy_async([[maybe_unused]] void* into,
                                      [[maybe_unused]] const void* from,
                                      [[maybe_unused]] bool exists = true) {
    NV_IF_TARGET(NV_IS_DEVICE, (__pipeline_memcpy_async(into, from, 16, exists ? 0 : 16);))
  }
  __host__ __device__ void commit_copies() { NV_IF_TARGET(NV_IS_DEVICE, (__pipeline_commit();)) }
  __host__ __device__ void wait_copies([[maybe_unused]] int newest) {
    NV_IF_TARGET(NV_IS_DEVICE, (__pipeline_wait_prior(static_cast<unsigned>(newest));))
  }

 private:
  template <class Combine>
  __host__ __device__ float reduce(float x, [[maybe_unused]] const Combine& combine) {
    NV_IF_TARGET(NV_IS_DEVICE, (x = reduce_on_device(x, combine);))
    return x;
  }
  template <class Combine>
  __device__ float reduce_on_device(float x, const Combine& combine) {
    for (int distance = 16; distance > 0; distance /= 2)
      x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
    constexpr int warps = block_threads / 32;
    if (warps == 1) return x;
    if (threadIdx.x % 32 == 0) scratch_[threadIdx.x / 32] = x;
    __syncthreads();
    x = scratch_[0];
    for (int warp = 1; warp < warps; ++warp) x = combine(x, scratch_[warp]);
    __syncthreads();
    return x;
  }

  std::byte* shared_;
  float* scratch_;  // one float per warp
};
static_assert(Block<DeviceBlock<tile_threads>> && TileBlock<DeviceBlock<tile_threads>>);

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run(const __grid_constant__ Kernel kernel) {
  extern __shared__ uint4 shared[];
  __shared__ float scratch[max_warps];
  static_assert(sizeof scratch == static_shared_bytes);
  DeviceBlock<Kernel::threads> block(reinterpret_cast<std::byte*>(shared), scratch);
  kernel(block);
}

}  // namespace ringside::autograd::cuda
