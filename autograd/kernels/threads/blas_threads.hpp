// Stops a BLAS from using its own threads. Implemented in blas_threads_openblas.cpp, and for a BLAS
// without threads in blas_threads_other.cpp.
#pragma once

namespace ringside::autograd {

// For calls from this thread. It is cheap, and gemm calls it before each product.
void use_blas_on_one_thread();

}  // namespace ringside::autograd
