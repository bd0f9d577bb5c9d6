// The same on a GPU, for nvcc: gpu.hpp says what the functions do. They are __host__ __device__
// because kernels are constexpr; the host never calls them.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

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

template <class Kernel>
__global__ void run(const __grid_constant__ Kernel kernel) {
  extern __shared__ __align__(16) float shared[];
  DeviceThread gpu(shared);
  kernel(gpu);
}

// `n` numbers on the GPU, each `value`; they live as long as the program.
template <class T>
Global<T> numbers_on_gpu(std::int64_t n, T value, bool is_output = false) {
  T* data = nullptr;
  const std::vector<T> values(static_cast<std::size_t>(n), value);
  const std::size_t bytes = values.size() * sizeof(T);
  if (cudaMalloc(reinterpret_cast<void**>(&data), bytes) != cudaSuccess ||
      cudaMemcpy(data, values.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess) {
    std::printf("no GPU, or none with %.1f GB free: %s\n", static_cast<double>(bytes) / 1e9,
                cudaGetErrorString(cudaGetLastError()));
    std::exit(1);
  }
  return Global<T>(data, n, "", is_output);
}

// Runs the kernel 20 times after a first one, and prints what it reads and writes in a second.
template <class Kernel>
void measure(const char* name, double bytes, const Kernel& kernel, int blocks, int threads,
             int shared_floats = 0) {
  constexpr int times = 20;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int n = -1; n < times; ++n) {
    if (n == 0) cudaEventRecord(begin);
    run<<<blocks, threads, shared_floats * sizeof(float)>>>(kernel);
  }
  cudaEventRecord(end);
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    std::printf("%s: %s\n", name, cudaGetErrorString(error));
    std::exit(1);
  }
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  std::printf("%-24s %8.1f us  %7.0f GB/s\n", name, 1e3 * milliseconds / times,
              bytes * times / milliseconds / 1e6);
}

}  // namespace ringside::gpu
