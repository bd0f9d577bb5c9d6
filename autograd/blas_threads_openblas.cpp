#include <mutex>

#include "autograd/blas_threads.hpp"

extern "C" void openblas_set_num_threads(int);  // cblas.h may be the reference BLAS's, which does not declare it

namespace ringside::autograd {

void use_blas_on_one_thread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

}  // namespace ringside::autograd
