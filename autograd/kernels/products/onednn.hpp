// oneDNN, opened when it is first needed (Debian: libdnnl2; libdnnl.so.2 or .so.3). It multiplies
// matrices of bf16 (bf16_products.hpp), and those of fp32 for which it is faster than the BLAS
// (fp32_products.hpp). RINGSIDE_ONEDNN=off does without it.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>

#include "autograd/kernels/products/gemm.hpp"
#include "base/error.hpp"
#include "base/system/block_signals.hpp"

namespace ringside::autograd {

struct OneDnn {
  // 'T' transposes. 0 is success. oneDNN exports the second function since version 1.3, but its
  // header does not declare it.
  template <class T>
  using Gemm = int(char ta, char tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                   const T* a, std::int64_t lda, const T* b, std::int64_t ldb, float beta, float* c,
                   std::int64_t ldc);
  Gemm<float>* gemm_fp32 = nullptr;
  Gemm<std::uint16_t>* gemm_bf16 = nullptr;
  void (*set_openmp_threads)(int) = nullptr;
  std::string missing;  // why there is none; empty: there is

  // C = alpha op(A) op(B) + beta C, row-major, like gemm(). T is float, or std::uint16_t for bf16.
  template <class T>
  void multiply(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
                std::int64_t k, float alpha, const T* a, std::int64_t lda, const T* b,
                std::int64_t ldb, float beta, float* c, std::int64_t ldc) const {
    constexpr bool is_fp32 = std::is_same_v<T, float>;
    const auto gemm = std::get<Gemm<T>*>(std::tuple(gemm_fp32, gemm_bf16));
    const auto letter = [](Transpose transpose) { return transpose == Transpose::yes ? 'T' : 'N'; };
    // oneDNN's kernels point the stack pointer into a buffer of the heap, where a signal handler
    // would write over what lies below it. So signals wait until the product is there.
    const BlockSignals until_the_stack_is_back;
    set_openmp_threads(1);  // gemm() divides its work among threads itself
    const int status = gemm(letter(a_transposed), letter(b_transposed), m, n, k, alpha, a, lda, b,
                            ldb, beta, c, ldc);
    require(status == 0,
            "oneDNN cannot multiply {} matrices of {} x {} x {} (status {}): set "
            "RINGSIDE_ONEDNN=off",
            is_fp32 ? "fp32" : "bf16", m, n, k, status);
  }
};

// The first call opens the library; the answer never changes.
const OneDnn& onednn();

}  // namespace ringside::autograd
