// bf16: numbers of 16 bits with the range of fp32 and 8 bits of precision. How tensors are kept,
// not how they are computed with.
//
//     fp32    s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm         bf16 is the upper half
//     bf16    s eeeeeeee mmmmmmm
//
// An op on bf16 tensors widens its inputs to fp32, computes, and rounds its result, number by
// number where it can. What it saves for backward are the bf16 inputs, which are widened again
// there. So activations, weights and gradients take half the memory, and sums inside an op lose
// nothing.
#pragma once

#include "autograd/tensor/bf16_number.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

template <>
constexpr DType dtype_of<Bf16>() {
  return DType::bf16;
}

// The type that numbers of `type` are computed in: fp32 for bf16, else the type itself.
constexpr DType wide_type(DType type) {
  return type == DType::bf16 ? DType::fp32 : type;
}

// A bf16 tensor as a new one of fp32, in the same memory order; any other, also an undefined one,
// as it is. Without history.
Tensor wide(const Tensor& x);

// The reverse: where `type` is bf16, an fp32 tensor rounded to it; otherwise, and if it is
// undefined, x as it is.
Tensor rounded(const Tensor& x, DType type);

// dispatch() with Bf16 too: for what only moves numbers, and for loops that widen each number where
// they read it and round it where they write it, which costs no memory. wide() and rounded() are
// for what a GEMM needs.
template <class Body>
void dispatch_stored(DType type, const char* op, Body&& body) {
  if (type == DType::bf16) return body(Bf16{});
  dispatch(type, op, body);
}

}  // namespace ringside::autograd
