// How a BLAS that brings threads of its own is told not to use them: blas_threads_openblas.cpp, or
// blas_threads_other.cpp for a BLAS that has none.
#pragma once

namespace ringside::autograd {

void use_blas_on_one_thread();  // for calls from this thread; cheap, and called before each

}  // namespace ringside::autograd
