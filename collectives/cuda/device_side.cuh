// MEMORY and TEAM of one_sided/collectives.hpp on a GPU. They are marked __host__ __device__
// because the functions that call them are; the host never runs them.
#pragma once

#include <bit>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/atomic>
#include <nv/target>

#include "collectives/half.hpp"
#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives::cuda {

// The scope is the whole system, because the words may belong to another GPU: load_acquire() is
// ld.acquire.sys, store_release() is st.release.sys.
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
  // ld.relaxed.sys.b64 and st.relaxed.sys.b64: a word of 8 bytes is read and written as a whole.
  using PacketWord = ::cuda::atomic_ref<one_sided::Packet, ::cuda::thread_scope_system>;
  __host__ __device__ static one_sided::Packet load_packet(const one_sided::Packet& packet) {
    return PacketWord(const_cast<one_sided::Packet&>(packet)).load(::cuda::memory_order_relaxed);
  }
  __host__ __device__ static void store_packet(one_sided::Packet& packet, one_sided::Packet value) {
    PacketWord(packet).store(value, ::cuda::memory_order_relaxed);
  }
  // The clock that all processors of a GPU share.
  __host__ __device__ static std::uint64_t nanoseconds() {
    std::uint64_t now = 0;
    NV_IF_TARGET(NV_IS_DEVICE, (asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));))
    return now;
  }
  // No pause: a load of the flag from this GPU's memory already takes longer than one.
  __host__ __device__ static void pause() {}

  // 16 bytes in one instruction. The compiler would load a struct of elements one by one.
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
