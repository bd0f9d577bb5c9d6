// One number of bf16 (bf16.hpp has the tensors). On its own for GPU kernels, whose files include
// nothing else of the host's.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace ringside::autograd {

// To the nearest, ties to even; NaN stays NaN, and what is too large becomes infinite. In integers,
// which vectorises.
constexpr std::uint16_t bf16_by_integers(float number) {
  const auto all = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16, quiet = all >> 16 | 0x40;
  const bool is_nan = (all & 0x7fffffff) > 0x7f800000;
  return static_cast<std::uint16_t>(is_nan ? quiet : rounded);
}

}  // namespace ringside::autograd

#ifdef __CUDACC__
#include "autograd/cuda/device_bf16.cuh"  // bf16_bits by a GPU's own instruction
#else
namespace ringside::autograd {
constexpr std::uint16_t bf16_bits(float number) {
  return bf16_by_integers(number);
}
}  // namespace ringside::autograd
#endif

namespace ringside::autograd {

struct Bf16 {
  std::uint16_t bits = 0;

  constexpr Bf16() = default;
  constexpr Bf16(float number) : bits(bf16_bits(number)) {}  // NOLINT: a number is a number
  explicit constexpr Bf16(double number) : Bf16(static_cast<float>(number)) {}
  constexpr operator float() const {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }  // NOLINT
};
static_assert(sizeof(Bf16) == 2);

// What numbers that are kept as S are computed in: float for Bf16, else S. In a loop over them,
// `const Wide<S> x = p[i]`.
template <class S>
using Wide = std::conditional_t<std::is_same_v<S, Bf16>, float, S>;

}  // namespace ringside::autograd
