// embedding: copies rows of a table; backward adds to them.
#include <algorithm>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd {

// y[t] = w[ids[t]], or zeros for id -1
void CpuKernels::embedding(const Tensor& ids, const Tensor& w, const Tensor& y) const {
  const std::int64_t n = w.size(1), tokens = ids.elements();
  const std::int32_t* const id = ids.data<std::int32_t>();
  dispatch_stored(w.dtype(), "embedding", [&]<class T>(T) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      T* const row = y.data<T>() + t * n;
      id[t] < 0 ? std::fill_n(row, n, T{}) : std::copy_n(w.data<T>() + id[t] * n, n, row);
    }
  });
}

// dw[ids[t]] += dy[t]; nothing for id -1. Threads divide the columns, not the tokens: two tokens
// may have the same id.
void CpuKernels::embedding_backward(const Tensor& ids, const Tensor& dy_stored,
                                    const Tensor& dw_stored) const {
  const Tensor dy = to_compute_dtype(dy_stored), dw = to_compute_dtype(dw_stored);
  const std::int64_t n = dw.size(1), tokens = ids.elements();
  const std::int32_t* const id = ids.data<std::int32_t>();
  dispatch(dy.dtype(), "embedding", [&]<class T>(T) {
    parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (id[t] < 0) continue;
        const T* const from = dy.data<T>() + t * n;
        T* const to = dw.data<T>() + id[t] * n;
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    });
  });
  convert_into(dw_stored, dw);
}

}  // namespace ringside::autograd
