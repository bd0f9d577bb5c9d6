// The BLAS that this program is linked with. Implemented in blas_threads_openblas.cpp, and for
// other BLAS in blas_threads_other.cpp.
#pragma once

#include <string>

namespace ringside::autograd {

// Stops the BLAS from using its own threads in calls from this thread. It is cheap, and gemm calls
// it before each product.
void use_blas_on_one_thread();

// Which BLAS it is, "OpenBLAS 0.3.21", and which of its kernels it has chosen for this processor,
// "SkylakeX". Texts are empty where the BLAS does not tell.
struct BlasInUse {
  std::string name, kernel;
};
BlasInUse blas_in_use();

}  // namespace ringside::autograd
