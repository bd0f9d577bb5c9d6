// Why OpenBLAS. fp32 in GFLOP/s, the best of seven runs, two cores of an AMD EPYC (Zen 4), Debian
// 12:
//
//                                     1 thread            2 threads
//      m     n     k              OpenBLAS  oneDNN     OpenBLAS  oneDNN
//     1024   512   512   x W^T       106      110         212      178
//     1024   512   512   dy W        106      114         211      213
//     1024   512 10000   dy W        103      114         207      219
//     1024 10000   512   x W^T       109      112         210      220
//       64   256    32   q k^T        84      100
//       64    32   256   p v         116      113
//
// oneDNN 2.6 is 3 to 10 % faster on one thread in most cases, and faster or slower on two. It has
// no fp64. OpenBLAS has both dtypes and is part of every distribution.
//
// Threads: OpenBLAS runs on one thread only; gemm_in_slices() divides C among threads. So any build
// of OpenBLAS (serial, pthread, OpenMP) works, ranks that are threads do not wait for each other in
// its thread pool, and the bits depend on threads() only.
#include "autograd/kernels/gemm.hpp"

#include <cblas.h>

#include <algorithm>
#include <type_traits>

#include "autograd/kernels/bf16_products.hpp"
#include "autograd/kernels/profile.hpp"
#include "autograd/kernels/threads/blas_threads.hpp"
#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd {

namespace {

void multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, float alpha,
              const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha,
              const double* a, int lda, const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, float alpha,
              const Bf16* a, int lda, const Bf16* b, int ldb, float beta, float* c, int ldc) {
  const auto of = [](CBLAS_TRANSPOSE t) {
    return t == CblasTrans ? Transpose::yes : Transpose::no;
  };
  bf16_product(of(ta), of(tb), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
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

// A is the type of the operands, T that of the sums.
template <class A, class T>
void gemm_in_slices(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
                    std::int64_t k, T alpha, const A* a, std::int64_t lda, const A* b,
                    std::int64_t ldb, T beta, T* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {  // an empty sum, which not every BLAS accepts
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    return;
  }
  use_blas_on_one_thread();
  const GemmTimer timer({a_transposed, b_transposed, m, n, k, std::is_same_v<A, Bf16>});
  const auto ta = a_transposed == Transpose::yes ? CblasTrans : CblasNoTrans,
             tb = b_transposed == Transpose::yes ? CblasTrans : CblasNoTrans;
  // Slices of the longer side of C, in units of 16 rows or columns (a register tile). Each slice is
  // at least 2 MFLOP of work.
  constexpr std::int64_t unit = 16;
  const bool by_rows = m >= n;
  const std::int64_t length = by_rows ? m : n, units = (length + unit - 1) / unit;
  const std::int64_t flops_of_unit = 2 * unit * (by_rows ? n : m) * k;
  const auto as_int = [](std::int64_t i) { return static_cast<int>(i); };
  parallel_for(
      units, (2'000'000 + flops_of_unit - 1) / flops_of_unit,
      [&](std::int64_t first, std::int64_t last) {
        const std::int64_t begin = first * unit, count = std::min(last * unit, length) - begin;
        if (by_rows) {
          const A* const a_slice = a_transposed == Transpose::yes ? a + begin : a + begin * lda;
          multiply(ta, tb, as_int(count), as_int(n), as_int(k), alpha, a_slice, as_int(lda), b,
                   as_int(ldb), beta, c + begin * ldc, as_int(ldc));
        } else {
          const A* const b_slice = b_transposed == Transpose::yes ? b + begin * ldb : b + begin;
          multiply(ta, tb, as_int(m), as_int(count), as_int(k), alpha, a, as_int(lda), b_slice,
                   as_int(ldb), beta, c + begin, as_int(ldc));
        }
      });
}

}  // namespace

void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const Bf16* a, std::int64_t lda, const Bf16* b,
          std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  gemm_in_slices(a_transposed, b_transposed, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
          std::int64_t k, float alpha, const float* a, std::int64_t lda, const float* b,
          std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  gemm_in_slices(a_transposed, b_transposed, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void gemm(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
          std::int64_t k, double alpha, const double* a, std::int64_t lda, const double* b,
          std::int64_t ldb, double beta, double* c, std::int64_t ldc) {
  gemm_in_slices(a_transposed, b_transposed, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

}  // namespace ringside::autograd
