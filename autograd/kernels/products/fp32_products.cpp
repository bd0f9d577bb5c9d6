#include "autograd/kernels/products/fp32_products.hpp"

#include <cblas.h>

#include <algorithm>
#include <atomic>

#include "autograd/kernels/products/onednn.hpp"
#include "autograd/kernels/threads/blas_threads.hpp"

namespace ringside::autograd {

namespace {

// [place of the kind in product_kinds]. Ranks that are threads may set and read it at once.
std::array<std::atomic<MatrixLibrary>, product_kinds.size()> libraries{};

std::size_t place_of(const ProductKind& kind) {
  return static_cast<std::size_t>(std::find(product_kinds.begin(), product_kinds.end(), kind) -
                                  product_kinds.begin());
}

}  // namespace

ProductKind kind_of(Transpose a, Transpose b, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {a, b, 2 * m * n * k < 4'000'000};
}

std::string name_of(const ProductKind& kind) {
  const auto letter = [](Transpose transpose) { return transpose == Transpose::yes ? "T" : "N"; };
  return std::string(kind.is_short ? "short " : "long ") + letter(kind.a) + letter(kind.b);
}

void multiply_by(const ProductKind& kind, MatrixLibrary library) {
  if (!onednn().missing.empty()) library = MatrixLibrary::blas;
  libraries.at(place_of(kind)) = library;
}

MatrixLibrary library_for(const ProductKind& kind) {
  const std::size_t place = place_of(kind);
  return place < libraries.size() ? libraries[place].load() : MatrixLibrary::blas;
}

void fp32_product(MatrixLibrary library, Transpose a_transposed, Transpose b_transposed,
                  std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                  std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                  std::int64_t ldc) {
  if (library == MatrixLibrary::blas) {
    const auto word = [](Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; };
    const auto as_int = [](std::int64_t i) { return static_cast<int>(i); };
    use_blas_on_one_thread();
    cblas_sgemm(CblasRowMajor, word(a_transposed), word(b_transposed), as_int(m), as_int(n),
                as_int(k), alpha, a, as_int(lda), b, as_int(ldb), beta, c, as_int(ldc));
    return;
  }
  onednn().multiply(a_transposed, b_transposed, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

}  // namespace ringside::autograd
