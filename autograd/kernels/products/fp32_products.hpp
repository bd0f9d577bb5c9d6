// Products of fp32 matrices: by the BLAS, or by oneDNN where that is faster.
//
// Which of the two is faster depends on the processor, on their versions, and on the product. So
// products are divided into kinds, `ringside bench --calibrate` measures each kind once and keeps
// the result (training/product_calibration.hpp), and a program says at its start which
// kinds go to oneDNN. Until then all go to the BLAS.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "autograd/kernels/products/gemm.hpp"

namespace ringside::autograd {

// Products of one form, all short or all long. Short ones, below 4 MFLOP, are those of attention;
// the long ones are those of linear layers.
struct ProductKind {
  Transpose a, b;
  bool is_short;
  bool operator==(const ProductKind&) const = default;
};

// The two operands are never both transposed: such a product goes to the BLAS.
constexpr std::array<ProductKind, 6> product_kinds = {{{Transpose::no, Transpose::yes, false},
                                                       {Transpose::no, Transpose::no, false},
                                                       {Transpose::yes, Transpose::no, false},
                                                       {Transpose::no, Transpose::yes, true},
                                                       {Transpose::no, Transpose::no, true},
                                                       {Transpose::yes, Transpose::no, true}}};

ProductKind kind_of(Transpose a, Transpose b, std::int64_t m, std::int64_t n, std::int64_t k);

// "long NT": N for an operand as it is, T for a transposed one.
std::string name_of(const ProductKind& kind);

enum class MatrixLibrary { blas, onednn };

// Sends all later products of this kind, on all threads, to that library; to the BLAS if there is
// no oneDNN.
void multiply_by(const ProductKind& kind, MatrixLibrary library);
MatrixLibrary library_for(const ProductKind& kind);

// C = alpha op(A) op(B) + beta C, as gemm(), on the calling thread only. For one library, equal
// arguments give equal bits.
void fp32_product(MatrixLibrary library, Transpose a_transposed, Transpose b_transposed,
                  std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                  std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                  std::int64_t ldc);

}  // namespace ringside::autograd
