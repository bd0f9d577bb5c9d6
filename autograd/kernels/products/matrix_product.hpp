// multiply: products of matrices on any device and of any dtype; the ops' way to gemm.
#pragma once

#include <cstdint>

#include "autograd/kernels/products/gemm.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// C = op(A) op(B) + beta C; op(A) is m x k, op(B) is k x n. The matrices are contiguous.
struct MatrixProduct {
  Transpose a = Transpose::no, b = Transpose::no;
  std::int64_t m = 0, n = 0, k = 0;
  float beta = 0;  // 0 or 1
};

// The same at addresses on the host. A is the type of the operands, T that of the sums.
template <class A, class T>
void multiply_at(const MatrixProduct& p, const A* a, const A* b, T* c) {
  const std::int64_t lda = p.a == Transpose::no ? p.k : p.m, ldb = p.b == Transpose::no ? p.n : p.k;
  gemm(p.a, p.b, p.m, p.n, p.k, T(1), a, lda, b, ldb, T(p.beta), c, p.n);
}

// Computes the product where c is; a and b are on the same device. bf16 products are summed in fp32
// and rounded once; for bf16 a and b, c may also be fp32.
void multiply(const MatrixProduct& product, const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace ringside::autograd
