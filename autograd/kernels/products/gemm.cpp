// gemm() divides C into slices, one for each thread, and lets a library multiply each slice on that
// thread alone. So any build of a BLAS works (serial, pthread, OpenMP), ranks that are threads do
// not wait for each other in its thread pool, and the bits depend on threads() and on the library
// only.
//
// fp64 goes to the BLAS, bf16 to oneDNN, and fp32 to the faster of the two (fp32_products.hpp).
#include "autograd/kernels/products/gemm.hpp"

#include <cblas.h>

#include <algorithm>
#include <type_traits>

#include "autograd/kernels/products/bf16_products.hpp"
#include "autograd/kernels/products/fp32_products.hpp"
#include "autograd/kernels/profile.hpp"
#include "autograd/kernels/threads/blas_threads.hpp"
#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd {

namespace {

void fp64_product(Transpose ta, Transpose tb, std::int64_t m, std::int64_t n, std::int64_t k,
                  double alpha, const double* a, std::int64_t lda, const double* b,
                  std::int64_t ldb, double beta, double* c, std::int64_t ldc) {
  const auto as_int = [](std::int64_t i) { return static_cast<int>(i); };
  const auto of = [](Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; };
  use_blas_on_one_thread();
  cblas_dgemm(CblasRowMajor, of(ta), of(tb), as_int(m), as_int(n), as_int(k), alpha, a, as_int(lda),
              b, as_int(ldb), beta, c, as_int(ldc));
}

class GemmTimer {
 public:
  explicit GemmTimer(const Product& product)
      : product_(product), start_(Profile::on() ? Clock::now() : Clock::time_point{}) {}
  ~GemmTimer() {
    if (Profile::on()) Profile::note_gemm(product_, seconds_since(start_));
  }
  GemmTimer(const GemmTimer&) = delete;
  GemmTimer& operator=(const GemmTimer&) = delete;

 private:
  Product product_;
  Clock::time_point start_;
};

}  // namespace

template <class A, class T>
void gemm(Transpose ta, Transpose tb, std::int64_t m, std::int64_t n, std::int64_t k,
          std::type_identity_t<T> alpha, const A* a, std::int64_t lda, const A* b, std::int64_t ldb,
          std::type_identity_t<T> beta, T* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {  // an empty sum, which not every BLAS accepts
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    return;
  }
  // Of the whole product, so that it does not depend on the number of slices.
  const MatrixLibrary library = library_for(kind_of(ta, tb, m, n, k));
  const auto multiply = [&](auto... slice) {
    if constexpr (std::is_same_v<A, Bf16>)
      bf16_product(slice...);
    else if constexpr (std::is_same_v<A, double>)
      fp64_product(slice...);
    else
      fp32_product(library, slice...);
  };
  const GemmTimer timer({ta, tb, m, n, k, std::is_same_v<A, Bf16>});
  // Slices of the longer side of C, in units of 16 rows or columns (a register tile). Each slice is
  // at least 2 MFLOP of work.
  constexpr std::int64_t unit = 16;
  const bool by_rows = m >= n;
  const std::int64_t length = by_rows ? m : n, units = (length + unit - 1) / unit;
  const std::int64_t flops_of_unit = 2 * unit * (by_rows ? n : m) * k;
  parallel_for(
      units, (2'000'000 + flops_of_unit - 1) / flops_of_unit,
      [&](std::int64_t first, std::int64_t last) {
        const std::int64_t begin = first * unit, count = std::min(last * unit, length) - begin;
        if (by_rows) {
          const A* const a_slice = ta == Transpose::yes ? a + begin : a + begin * lda;
          multiply(ta, tb, count, n, k, alpha, a_slice, lda, b, ldb, beta, c + begin * ldc, ldc);
        } else {
          const A* const b_slice = tb == Transpose::yes ? b + begin * ldb : b + begin;
          multiply(ta, tb, m, count, k, alpha, a, lda, b_slice, ldb, beta, c + begin, ldc);
        }
      });
}

template void gemm(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, float,
                   const float*, std::int64_t, const float*, std::int64_t, float, float*,
                   std::int64_t);
template void gemm(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, double,
                   const double*, std::int64_t, const double*, std::int64_t, double, double*,
                   std::int64_t);
template void gemm(Transpose, Transpose, std::int64_t, std::int64_t, std::int64_t, float,
                   const Bf16*, std::int64_t, const Bf16*, std::int64_t, float, float*,
                   std::int64_t);

}  // namespace ringside::autograd
