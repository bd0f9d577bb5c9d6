#include <dlfcn.h>

#include "autograd/kernels/threads/blas_threads.hpp"

// Declared here because cblas.h may be the reference BLAS's, which lacks it.
extern "C" void openblas_set_num_threads(int);
extern "C" char* openblas_get_config();
extern "C" char* openblas_get_corename();

namespace ringside::autograd {

// OpenBLAS built for pthreads has one number of threads for the process: it is set once. OpenBLAS
// built for OpenMP uses OpenMP's number, which is kept per calling thread: it is set at each call,
// in the OpenMP runtime that OpenBLAS loaded. The loops of parallel.hpp pass their number of
// threads explicitly, so this does not affect them.
void use_blas_on_one_thread() {
  using SetThreads = void (*)(int);
  static const SetThreads set_openmp_threads = [] {
    openblas_set_num_threads(1);
    return reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  }();
  if (set_openmp_threads) set_openmp_threads(1);
}

// The configuration begins with name and version: "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...".
BlasInUse blas_in_use() {
  const std::string configuration = openblas_get_config();
  const std::size_t version = configuration.find(' ') + 1;
  return {configuration.substr(0, configuration.find(' ', version)), openblas_get_corename()};
}

}  // namespace ringside::autograd
