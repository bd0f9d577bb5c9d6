// Products of bf16 matrices with fp32 sums, by oneDNN: where the processor multiplies bf16 numbers
// itself, that is twice as fast as fp32, and nothing is converted in memory first.
//
// Where oneDNN is missing (onednn.hpp), or the processor has no such instructions, gemm's callers
// convert bf16 to fp32 and multiply that.
#pragma once

#include <string>

#include "autograd/kernels/products/gemm.hpp"
#include "autograd/tensor/bf16.hpp"

namespace ringside::autograd {

// Whether bf16_product() can be called. The first call opens the library; the answer never changes.
bool has_bf16_products();

// Why not: "oneDNN is not installed"; empty if has_bf16_products().
std::string why_no_bf16_products();

// C = alpha op(A) op(B) + beta C, as gemm(), on the calling thread only.
void bf16_product(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
                  std::int64_t k, float alpha, const Bf16* a, std::int64_t lda, const Bf16* b,
                  std::int64_t ldb, float beta, float* c, std::int64_t ldc);

}  // namespace ringside::autograd
