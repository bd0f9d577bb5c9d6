// Which libraries multiply matrices on this CPU, and whether they use all of it. A BLAS chooses a
// kernel by the processor, or by a variable of the environment: a machine that sets
// OPENBLAS_CORETYPE=Haswell for its users halves the speed of a processor with AVX-512.
#pragma once

#include <string>

namespace ringside::training {

struct MatrixLibraries {
  std::string blas, blas_kernel;  // "OpenBLAS 0.3.21", "SkylakeX"; empty: unknown
  int vector_bits = 0;            // of the processor's vector units; 0: unknown
  std::string bf16;               // why there are no products of bf16 numbers; empty: oneDNN's
  bool fp32_by_onednn =
      false;  // some kinds of products of fp32 (autograd/kernels/products/fp32_products.hpp)
};

MatrixLibraries matrix_libraries();  // of this machine

// "products by OpenBLAS 0.3.21 (SkylakeX), bf16 by oneDNN; 512-bit vectors", or "products by
// OpenBLAS 0.3.21 (SkylakeX) and oneDNN; ..." if both multiply fp32.
std::string in_words(const MatrixLibraries& libraries);

int vector_bits_here();  // of this processor's vector units; 0: unknown

// Whether a BLAS that multiplies with this kernel does not know the processor: the kernel uses
// shorter vectors than there are, and no variable of the environment asked for it. OpenBLAS 0.3.21
// takes one of 128 bits on an Emerald Rapids, and is four times slower.
bool blas_does_not_know_processor(const std::string& kernel, int vector_bits);

// The kernel to ask OpenBLAS for (OPENBLAS_CORETYPE, which it reads when it is loaded): where it
// does not know this processor, and oneDNN does not multiply. Else empty.
std::string kernel_to_ask_for();

// A sentence if the kernel of the BLAS uses shorter vectors than the processor has; empty if not,
// if either is unknown, or if oneDNN multiplies instead.
std::string slow_kernel_warning(const MatrixLibraries& libraries);

}  // namespace ringside::training
