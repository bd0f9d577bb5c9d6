#include "autograd/kernels/products/bf16_products.hpp"

#include "autograd/kernels/products/onednn.hpp"
#include "base/system/processor.hpp"

namespace ringside::autograd {

bool has_bf16_products() {
  return why_no_bf16_products().empty();
}

std::string why_no_bf16_products() {
  if (onednn().missing.empty() && !processor_features().avx512bf16)
    return "the processor does not multiply bf16 numbers";
  return onednn().missing;
}

void bf16_product(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
                  std::int64_t k, float alpha, const Bf16* a, std::int64_t lda, const Bf16* b,
                  std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  onednn().multiply(a_transposed, b_transposed, m, n, k, alpha, &a->bits, lda, &b->bits, ldb, beta,
                    c, ldc);
}

}  // namespace ringside::autograd
