// oneDNN, opened when it is first needed (Debian: libdnnl2; libdnnl.so.2 or .so.3). It multiplies
// matrices of bf16 (bf16_products.hpp), and those of fp32 for which it is faster than the BLAS
// (fp32_products.hpp). RINGSIDE_ONEDNN=off does without it.
#pragma once

#include <cstdint>
#include <string>

namespace ringside::autograd {

struct OneDnn {
  // C = alpha op(A) op(B) + beta C, row-major, like gemm(); 'T' transposes. 0 is success. oneDNN
  // exports the second function since version 1.3, but its header does not declare it.
  template <class T>
  using Gemm = int(char ta, char tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                   const T* a, std::int64_t lda, const T* b, std::int64_t ldb, float beta, float* c,
                   std::int64_t ldc);
  Gemm<float>* gemm_fp32 = nullptr;
  Gemm<std::uint16_t>* gemm_bf16 = nullptr;
  // gemm() divides its work among threads itself, so oneDNN must not.
  void (*set_openmp_threads)(int) = nullptr;
  std::string missing;  // why there is none; empty: there is
};

// The first call opens the library; the answer never changes.
const OneDnn& onednn();

}  // namespace ringside::autograd
