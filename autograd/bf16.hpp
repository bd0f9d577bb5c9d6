// bf16: numbers of 16 bits with the range of fp32 and 8 bits of precision. How tensors are kept, not how they are computed with.
//
//     fp32    s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm         bf16 is the upper half
//     bf16    s eeeeeeee mmmmmmm
//
// An op on bf16 tensors widens its inputs to fp32, computes, and rounds its result, number by number where it can. What it saves for backward
// are the bf16 inputs, which are widened again there. So activations, weights and gradients take half the memory, and sums inside an op lose nothing.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "autograd/tensor.hpp"

namespace ringside::autograd {

// To the nearest, ties to even; NaN stays NaN, and what is too large becomes infinite.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  Bf16(float number) {  // NOLINT: a number is a number
    const auto all = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16, quiet = all >> 16 | 0x40;
    const bool is_nan = (all & 0x7fffffff) > 0x7f800000;  // in integers, which vectorises
    bits = static_cast<std::uint16_t>(is_nan ? quiet : rounded);
  }
  explicit Bf16(double number) : Bf16(static_cast<float>(number)) {}
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }  // NOLINT
};
static_assert(sizeof(Bf16) == 2);

template <>
constexpr DType dtype_of<Bf16>() {
  return DType::bf16;
}

// What numbers that are kept as S are computed in: float for Bf16, else S. In a loop over them, `const Wide<S> x = p[i]`.
template <class S>
using Wide = std::conditional_t<std::is_same_v<S, Bf16>, float, S>;

// The type that numbers of `type` are computed in: fp32 for bf16, else the type itself.
constexpr DType wide_type(DType type) {
  return type == DType::bf16 ? DType::fp32 : type;
}

// A bf16 tensor as a new one of fp32, in the same memory order; any other, also an undefined one, as it is. Without history.
Tensor wide(const Tensor& x);

// The reverse: where `type` is bf16, an fp32 tensor rounded to it; otherwise, and if it is undefined, x as it is.
Tensor rounded(const Tensor& x, DType type);

// dispatch() with Bf16 too: for what only moves numbers, and for loops that widen each number where they read it and round it where they
// write it, which costs no memory. wide() and rounded() are for what a GEMM needs.
template <class Body>
void dispatch_stored(DType type, const char* op, Body&& body) {
  if (type == DType::bf16) return body(Bf16{});
  dispatch(type, op, body);
}

}  // namespace ringside::autograd
