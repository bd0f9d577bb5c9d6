// gemm: general matrix multiplication, the only computation that is left to libraries (a BLAS, and
// oneDNN for bf16 and where it is faster).
#pragma once

#include <cstdint>

#include "autograd/tensor/bf16.hpp"

namespace ringside::autograd {

enum class Transpose { no, yes };

// C = alpha op(A) op(B) + beta C, all row-major; op(A) is m x k, op(B) is k x n, C is m x n. `lda`,
// `ldb`, `ldc` are the distances between stored rows, in elements (of A itself, not of op(A)). With
// beta = 0, C is written and not read. C must not overlap A or B. It uses threads() threads
// (parallel.hpp); equal arguments with equal numbers of threads and the same library
// (fp32_products.hpp) give equal bits.
void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const float* a, std::int64_t lda, const float* b,
          std::int64_t ldb, float beta, float* c, std::int64_t ldc);
void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
          std::int64_t k, double alpha, const double* a, std::int64_t lda, const double* b,
          std::int64_t ldb, double beta, double* c, std::int64_t ldc);

// The same for bf16 operands; sums and C are fp32. Only where has_bf16_products()
// (bf16_products.hpp).
void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const Bf16* a, std::int64_t lda, const Bf16* b,
          std::int64_t ldb, float beta, float* c, std::int64_t ldc);

}  // namespace ringside::autograd
