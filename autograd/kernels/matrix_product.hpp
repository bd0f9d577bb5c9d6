// multiply: products of matrices on any device and of any dtype; the ops' way to gemm.
#pragma once

#include <cstdint>

#include "autograd/kernels/gemm.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// `count` products C = op(A) op(B) + beta C; op(A) is m x k, op(B) is k x n. The matrices of each
// tensor are contiguous and follow each other.
struct MatrixProduct {
  Transpose a = Transpose::no, b = Transpose::no;
  std::int64_t m = 0, n = 0, k = 0, count = 1;
  float beta = 0;  // 0 or 1
};

// Computes the product where c is; a and b are on the same device. bf16 products are summed in fp32
// and rounded once; for bf16 a and b, c may also be fp32.
void multiply(const MatrixProduct& product, const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace ringside::autograd
