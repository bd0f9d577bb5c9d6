#include "training/matrix_libraries.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "autograd/kernels/products/bf16_products.hpp"
#include "autograd/kernels/products/fp32_products.hpp"
#include "autograd/kernels/threads/blas_threads.hpp"
#include "base/environment.hpp"
#include "base/system/processor.hpp"

namespace ringside::training {
namespace {

// The vectors of OpenBLAS's kernels for x86, as its source names them (cpuid_x86.c, KERNEL.*); 0
// for a kernel that is not in the list.
int vector_bits_of(const std::string& kernel) {
  for (const char* name : {"SkylakeX", "Cooperlake", "SapphireRapids"})
    if (kernel == name) return 512;
  for (const char* name :
       {"Haswell", "Zen", "Excavator", "Steamroller", "Piledriver", "Bulldozer", "Sandybridge"})
    if (kernel == name) return 256;
  for (const char* name : {"Nehalem", "Prescott", "Penryn", "Dunnington", "Core2", "Atom", "Nano",
                           "Opteron", "Opteron_SSE3", "Barcelona", "Bobcat"})
    if (kernel == name) return 128;
  return 0;
}

// The bits of the vectors that the BLAS uses, if they are fewer than there are; 0: they are not.
int too_few_bits(const std::string& kernel, int vector_bits) {
  const int used = vector_bits_of(kernel);
  return used < vector_bits ? used : 0;
}

const char* name_of_kernel(int vector_bits) {
  return vector_bits == 512 ? "SKYLAKEX" : "HASWELL";
}

}  // namespace

int vector_bits_here() {
#ifdef __x86_64__
  const ProcessorFeatures has = processor_features();
  if (has.avx512f && has.avx512vl) return 512;
  return has.avx2 ? 256 : 128;
#else
  return 0;
#endif
}

MatrixLibraries matrix_libraries() {
  const autograd::BlasInUse blas = autograd::blas_in_use();
  const bool fp32_by_onednn =
      std::any_of(autograd::product_kinds.begin(), autograd::product_kinds.end(),
                  [](const autograd::ProductKind& kind) {
                    return library_for(kind) == autograd::MatrixLibrary::onednn;
                  });
  return {blas.name, blas.kernel, vector_bits_here(), autograd::why_no_bf16_products(),
          fp32_by_onednn};
}

std::string in_words(const MatrixLibraries& libraries) {
  std::string text = "products by " + (libraries.blas.empty() ? "a BLAS" : libraries.blas);
  if (!libraries.blas_kernel.empty()) text += fmt::format(" ({})", libraries.blas_kernel);
  if (libraries.fp32_by_onednn) text += " and oneDNN";
  if (!libraries.bf16.empty())
    text += ", bf16 as fp32";
  else if (!libraries.fp32_by_onednn)
    text += ", bf16 by oneDNN";
  if (libraries.vector_bits > 0) text += fmt::format("; {}-bit vectors", libraries.vector_bits);
  return text;
}

bool blas_does_not_know_processor(const std::string& kernel, int vector_bits) {
  return too_few_bits(kernel, vector_bits) > 0 && !environment("OPENBLAS_CORETYPE");
}

std::string kernel_to_ask_for() {
  const int bits = vector_bits_here();
  if (!blas_does_not_know_processor(autograd::blas_in_use().kernel, bits)) return "";
  return matrix_libraries().fp32_by_onednn ? "" : name_of_kernel(bits);
}

std::string slow_kernel_warning(const MatrixLibraries& libraries) {
  const int used = too_few_bits(libraries.blas_kernel, libraries.vector_bits);
  if (used == 0 || libraries.fp32_by_onednn) return "";
  return fmt::format(
      "{} multiplies with its kernel {}, whose vectors have {} bits, but this processor has {}: {}",
      libraries.blas, libraries.blas_kernel, used, libraries.vector_bits,
      environment("OPENBLAS_CORETYPE")
          ? "unset OPENBLAS_CORETYPE"
          : fmt::format("set OPENBLAS_CORETYPE={}, or install oneDNN or a newer OpenBLAS",
                        name_of_kernel(libraries.vector_bits)));
}

}  // namespace ringside::training
