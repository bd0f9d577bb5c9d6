// MEMORY and TEAM of one_sided_collectives.hpp on a GPU. Marked as host and device because the
// functions that call them are both; on the host nobody runs them.
#pragma once

#include <bit>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/atomic>
#include <nv/target>

#include "collectives/half.hpp"
#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives::cuda {

// System scope everywhere: the same words may be another GPU's. load is ld.acquire.sys, store
// st.release.sys.
struct DeviceSide {
  using Word = ::cuda::atomic_ref<one_sided::Number, ::cuda::thread_scope_system>;
  using Number = one_sided::Number;

  __host__ __device__ static Number load_acquire(const Number& word) {
    return Word(const_cast<Number&>(word)).load(::cuda::memory_order_acquire);
  }
  __host__ __device__ static void store_release(Number& word, Number value) {
    Word(word).store(value, ::cuda::memory_order_release);
  }
  __host__ __device__ static void store_relaxed(Number& word, Number value) {
    Word(word).store(value, ::cuda::memory_order_relaxed);
  }
  __host__ __device__ static void pause() {
  }  // the flag lies in this GPU's own memory, which a look takes longer to reach than any pause

  // 16 bytes in one instruction: as a struct of elements the compiler would load them one by one.
  template <Element T>
  __host__ __device__ static one_sided::Pack<T> load(const T* from, const one_sided::Pack<T>&) {
    return std::bit_cast<one_sided::Pack<T>>(*reinterpret_cast<const uint4*>(from));
  }
  template <Element T>
  __host__ __device__ static T load(const T* from, const T&) {
    return *from;
  }
  template <Element T>
  __host__ __device__ static void store(T* into, const one_sided::Pack<T>& value) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (__stwb(reinterpret_cast<uint4*>(into), std::bit_cast<uint4>(value));))
  }
  template <Element T>
  __host__ __device__ static void store(T* into, const T& value) {
    *into = value;
  }

  __host__ __device__ static float widen(float element) { return element; }
  __host__ __device__ static float widen(const Fp16& element) {
    return __half2float(__half(__half_raw{element.bits}));
  }
  __host__ __device__ static float widen(const Bf16& element) {
    return fp32_from_bf16(element.bits);
  }
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
  __host__ __device__ bool any(bool lost) const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __syncthreads_or(lost) != 0;), (return lost;))
  }
};

}  // namespace ringside::collectives::cuda
