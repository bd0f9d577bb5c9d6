// store() in a file that nvcc compiles. It says which instruction it wants: nvcc splits a struct of
// eight elements into eight stores, and 128 bits that were four floats into four
// (tests/autograd/machine_code/ looks). Included by block.hpp only.
#pragma once

#include <bit>

#include <vector_types.h>
#include <nv/target>

namespace ringside::autograd::cuda {

template <class S>
__device__ void store_on_device(S* into, const Pack<S>& pack) {
  const uint4 bits = std::bit_cast<uint4>(pack);
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(into)),
               "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w)
               : "memory");
}

template <class S>
__host__ __device__ constexpr void store(S* into, const Pack<S>& pack) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (store_on_device(into, pack);),
                    (*reinterpret_cast<Pack<S>*>(into) = pack;))
}

}  // namespace ringside::autograd::cuda
