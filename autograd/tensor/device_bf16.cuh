// bf16_bits() in a file that nvcc compiles: a GPU rounds to bf16 with one instruction, where
// bf16_by_integers() takes seven. Included by bf16.hpp only.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <nv/target>

namespace ringside::autograd {

__host__ __device__ constexpr std::uint16_t bf16_bits(float number) {
  if (std::is_constant_evaluated()) return bf16_by_integers(number);
  NV_IF_ELSE_TARGET(NV_IS_DEVICE,
                    (return static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(number)).x;),
                    (return bf16_by_integers(number);))
}

}  // namespace ringside::autograd
