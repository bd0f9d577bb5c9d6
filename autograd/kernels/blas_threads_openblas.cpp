#include <dlfcn.h>

#include "autograd/kernels/blas_threads.hpp"

extern "C" void openblas_set_num_threads(
    int);  // cblas.h may be the reference BLAS's, which does not declare it

namespace ringside::autograd {

// OpenBLAS comes in flavours. The one on pthreads has one number of threads for the process, set
// here once. The one on OpenMP asks OpenMP, which keeps a number per calling thread; so that is set
// on each, through the runtime that OpenBLAS itself brought along. (The loops of parallel.hpp name
// their number of threads and do not care.)
void use_blas_on_one_thread() {
  using SetThreads = void (*)(int);
  static const SetThreads set_openmp_threads = [] {
    openblas_set_num_threads(1);
    return reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  }();
  if (set_openmp_threads) set_openmp_threads(1);
}

}  // namespace ringside::autograd
