// The same on a GPU, for nvcc: gpu.hpp says what the functions do. They are __host__ __device__
// because kernels are constexpr; the host never calls them.
#pragma once

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <nv/target>

#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

class DeviceThread {
 public:
  __host__ __device__ explicit DeviceThread(float* shared) : shared_(shared) {}

  __host__ __device__ int thread() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return static_cast<int>(threadIdx.x);), (return 0;))
  }
  __host__ __device__ int threads() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return static_cast<int>(blockDim.x);), (return 1;))
  }
  __host__ __device__ std::int64_t block() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return blockIdx.x;), (return 0;))
  }
  __host__ __device__ std::int64_t blocks() const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return gridDim.x;), (return 1;))
  }
  template <class T>
  __host__ __device__ T load(const Global<T>& from, std::int64_t i) {
    return from.data_[i];
  }
  template <class T>
  __host__ __device__ void store(const Global<T>& into, std::int64_t i, T value) {
    into.data_[i] = value;
  }
  template <class T>
  __host__ __device__ Pack<T> load_pack(const Global<T>& from, std::int64_t i) {
    return autograd::cuda::load(from.data_ + i);
  }
  template <class T>
  __host__ __device__ void store_pack(const Global<T>& into, std::int64_t i, const Pack<T>& pack) {
    autograd::cuda::store(into.data_ + i, pack);
  }
  __host__ __device__ float load_shared(int i) { return shared_[i]; }
  __host__ __device__ void store_shared(int i, float value) { shared_[i] = value; }
  __host__ __device__ float add_shared(int i, float value) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return atomicAdd(shared_ + i, value);), (return value + i;))
  }
  __host__ __device__ void copy_async([[maybe_unused]] int into,
                                      [[maybe_unused]] const Global<float>& from,
                                      [[maybe_unused]] std::int64_t i,
                                      [[maybe_unused]] bool exists) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (__pipeline_memcpy_async(shared_ + into, from.data_ + (exists ? i : 0), 16,
                                          exists ? 0 : 16);))
  }
  __host__ __device__ void commit_copies() { NV_IF_TARGET(NV_IS_DEVICE, (__pipeline_commit();)) }
  __host__ __device__ void wait_copies([[maybe_unused]] int newest) {
    NV_IF_TARGET(NV_IS_DEVICE, (__pipeline_wait_prior(static_cast<unsigned>(newest));))
  }
  __host__ __device__ void sync() { NV_IF_TARGET(NV_IS_DEVICE, (__syncthreads();)) }
  __host__ __device__ float sum(float value) {
    NV_IF_TARGET(NV_IS_DEVICE, (value = sum_on_device(value);))
    return value;
  }
  __host__ __device__ float shuffle_down([[maybe_unused]] std::uint32_t mask, float value,
                                         [[maybe_unused]] int distance) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (value = __shfl_down_sync(mask, value, static_cast<unsigned>(distance));))
    return value;
  }
  __host__ __device__ float shuffle_xor([[maybe_unused]] std::uint32_t mask, float value,
                                        [[maybe_unused]] int distance) {
    NV_IF_TARGET(NV_IS_DEVICE, (value = __shfl_xor_sync(mask, value, distance);))
    return value;
  }
  __host__ __device__ static float exp(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __expf(x);), (return x;))
  }
  __host__ __device__ static float log(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return logf(x);), (return x;))
  }
  __host__ __device__ static float sqrt(float x) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return sqrtf(x);), (return x;))
  }

 private:
  __device__ static float sum_on_device(float value);

  float* shared_;
};

inline __device__ float DeviceThread::sum_on_device(float value) {
  namespace groups = cooperative_groups;
  __shared__ float parts[32];
  const auto warp = groups::tiled_partition<32>(groups::this_thread_block());
  const float part = groups::reduce(warp, value, groups::plus<float>());
  __syncthreads();
  if (warp.thread_rank() == 0) parts[warp.meta_group_rank()] = part;
  __syncthreads();
  float sum = 0;
  for (unsigned n = 0; n < warp.meta_group_size(); ++n) sum += parts[n];
  return sum;
}

// A block may have 1,024 threads, so a thread gets 64 registers at most. It also lets two blocks of
// 512 threads run on one multiprocessor.
template <class Kernel>
__global__ void __launch_bounds__(1024) run(const __grid_constant__ Kernel kernel) {
  extern __shared__ __align__(16) float shared[];
  DeviceThread gpu(shared);
  kernel(gpu);
}

}  // namespace ringside::gpu
