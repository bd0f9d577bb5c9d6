#include "autograd/kernels/bf16_products.hpp"

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/shared_library.hpp"

namespace ringside::autograd {

namespace {

struct OneDnn {
  // Row-major, like gemm(). oneDNN exports this function since version 1.3, but its header does not
  // declare it. 0 is success.
  int (*gemm)(char ta, char tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
              const std::uint16_t* a, std::int64_t lda, const std::uint16_t* b, std::int64_t ldb,
              float beta, float* c, std::int64_t ldc) = nullptr;
  // gemm() divides its work among threads itself, so oneDNN must not.
  void (*set_openmp_threads)(int) = nullptr;
  std::string missing;  // why there is none
};

bool processor_multiplies_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

OneDnn open_onednn() {
  OneDnn found;
  if (environment("RINGSIDE_ONEDNN").value_or("on") == "off") {
    found.missing = "RINGSIDE_ONEDNN is off";
    return found;
  }
  if (!processor_multiplies_bf16()) {
    found.missing = "the processor does not multiply bf16 numbers";
    return found;
  }
  for (const char* file : {"libdnnl.so.3", "libdnnl.so.2"}) try {
      const SharedLibrary library("oneDNN", file, "/usr/local/lib");
      library.find(found.set_openmp_threads, "omp_set_num_threads");
      library.find(found.gemm, "dnnl_gemm_bf16bf16f32");
      return found;
    } catch (const Error&) {
      found.missing = "oneDNN is not installed (Debian: apt install libdnnl2)";
    }
  return found;
}

const OneDnn& onednn() {
  static const OneDnn opened = open_onednn();
  return opened;
}

}  // namespace

bool has_bf16_products() {
  return onednn().gemm != nullptr;
}

std::string why_no_bf16_products() {
  return onednn().gemm ? "" : onednn().missing;
}

void bf16_product(Transpose a_transposed, Transpose b_transposed, std::int64_t m, std::int64_t n,
                  std::int64_t k, float alpha, const Bf16* a, std::int64_t lda, const Bf16* b,
                  std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  const auto letter = [](Transpose transpose) { return transpose == Transpose::yes ? 'T' : 'N'; };
  onednn().set_openmp_threads(1);
  const int status = onednn().gemm(letter(a_transposed), letter(b_transposed), m, n, k, alpha,
                                   &a->bits, lda, &b->bits, ldb, beta, c, ldc);
  require(status == 0,
          "oneDNN cannot multiply bf16 matrices of {} x {} x {} (status {}): set "
          "RINGSIDE_ONEDNN=off",
          m, n, k, status);
}

}  // namespace ringside::autograd
