// Bf16: a number of 16 bits with the range of fp32 and 8 bits of precision.
//
//     fp32    s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm         bf16 is the upper half
//     bf16    s eeeeeeee mmmmmmm
//
// bf16 is a STORAGE dtype: tensors are stored in it, and no op computes in it. An op converts bf16
// inputs to fp32, its COMPUTE dtype, and rounds its result to bf16. For backward it saves the bf16
// inputs and converts them again. So activations, weights and gradients take half the memory, and a
// sum inside an op keeps the precision of fp32.
//
// GPU kernels include this header, so it includes no other header of the host.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace ringside::autograd {

// The bits of the nearest bf16; ties go to even. NaN stays NaN; a number that is too large becomes
// infinity. It uses integer instructions only, which compilers vectorise.
constexpr std::uint16_t bf16_by_integers(float number) {
  const auto all = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16, quiet = all >> 16 | 0x40;
  const bool is_nan = (all & 0x7fffffff) > 0x7f800000;
  return static_cast<std::uint16_t>(is_nan ? quiet : rounded);
}

}  // namespace ringside::autograd

#ifdef __CUDACC__
#include "autograd/tensor/device_bf16.cuh"  // bf16_bits by the GPU's own instruction
#else
namespace ringside::autograd {
constexpr std::uint16_t bf16_bits(float number) {
  return bf16_by_integers(number);
}
}  // namespace ringside::autograd
#endif

namespace ringside::autograd {

// The conversions from and to float are implicit, so that loops read and write Bf16 like a float.
struct Bf16 {
  std::uint16_t bits = 0;

  constexpr Bf16() = default;
  constexpr Bf16(float number) : bits(bf16_bits(number)) {}  // NOLINT
  explicit constexpr Bf16(double number) : Bf16(static_cast<float>(number)) {}
  // Without it a loop would assign a temporary Bf16, and GCC does not vectorise copies of structs.
  constexpr Bf16& operator=(float number) {
    bits = bf16_bits(number);
    return *this;
  }
  constexpr operator float() const {  // NOLINT
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
};
static_assert(sizeof(Bf16) == 2);

// The type in which a loop computes with numbers stored as S: float for Bf16, otherwise S. In a
// loop: `const Compute<S> x = p[i]`.
template <class S>
using Compute = std::conditional_t<std::is_same_v<S, Bf16>, float, S>;

}  // namespace ringside::autograd
