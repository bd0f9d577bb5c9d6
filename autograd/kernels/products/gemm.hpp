// gemm: general matrix multiplication, the only computation that is left to libraries (a BLAS, and
// oneDNN for bf16 and where it is faster).
#pragma once

#include <cstdint>
#include <type_traits>

#include "autograd/tensor/bf16.hpp"

namespace ringside::autograd {

enum class Transpose { no, yes };

// C = alpha op(A) op(B) + beta C, all row-major; op(A) is m x k, op(B) is k x n, C is m x n. `lda`,
// `ldb`, `ldc` are the distances between stored rows, in elements (of A itself, not of op(A)). With
// beta = 0, C is written and not read. C must not overlap A or B. It uses threads() threads
// (parallel.hpp); equal arguments with equal numbers of threads and the same library
// (fp32_products.hpp) give equal bits.
//
// T, the type of C and of the sums, is float or double, and A, the type of the operands, is the
// same; or A is Bf16 and T is float, only where has_bf16_products() (bf16_products.hpp).
template <class A, class T>
void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
          std::int64_t k, std::type_identity_t<T> alpha, const A* a, std::int64_t lda, const A* b,
          std::int64_t ldb, std::type_identity_t<T> beta, T* c, std::int64_t ldc);

}  // namespace ringside::autograd
