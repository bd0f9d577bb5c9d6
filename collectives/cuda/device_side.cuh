// MEMORY and TEAM of one_sided_collectives.hpp on a GPU. Marked as host and device because the functions that call them are both; on the
// host nobody runs them.
#pragma once

#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <nv/target>

#include "collectives/one_sided_collectives.hpp"

namespace ringside::collectives::cuda {

// System scope everywhere: the same words may be another GPU's. load is ld.acquire.sys, store st.release.sys.
struct DeviceSide {
  using Word = ::cuda::atomic_ref<one_sided::Number, ::cuda::thread_scope_system>;
  using Number = one_sided::Number;

  __host__ __device__ static Number load_acquire(const Number& word) {
    return Word(const_cast<Number&>(word)).load(::cuda::memory_order_acquire);
  }
  __host__ __device__ static void store_release(Number& word, Number value) { Word(word).store(value, ::cuda::memory_order_release); }
  __host__ __device__ static void store_relaxed(Number& word, Number value) { Word(word).store(value, ::cuda::memory_order_relaxed); }
  __host__ __device__ static void pause() {}  // the flag lies in this GPU's own memory, which a look takes longer to reach than any pause

  __host__ __device__ static float widen(float element) { return element; }
  __host__ __device__ static float widen(const Fp16& element) { return __half2float(__half(__half_raw{element.bits})); }
  __host__ __device__ static float widen(const Bf16& element) { return fp32_from_bf16(element.bits); }
  template <Element T>
  __host__ __device__ static T narrow(float value) {
    if constexpr (std::same_as<T, Fp16>) {
      T element;
      element.bits = static_cast<__half_raw>(__float2half_rn(value)).x;
      return element;
    } else if constexpr (std::same_as<T, Bf16>) {
      T element;
      element.bits = static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x;
      return element;
    } else {
      return value;
    }
  }
};

// The threads of a block.
struct Block {
  int thread, threads;
  __host__ __device__ int index() const { return thread; }
  __host__ __device__ int count() const { return threads; }
  __host__ __device__ void sync() const { NV_IF_TARGET(NV_IS_DEVICE, (__syncthreads();)) }
  __host__ __device__ bool any(bool lost) const { NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __syncthreads_or(lost) != 0;), (return lost;)) }
};

}  // namespace ringside::collectives::cuda
