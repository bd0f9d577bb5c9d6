#include "autograd/kernels/matrix_product.hpp"

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"

namespace ringside::autograd {

void multiply(const MatrixProduct& p, const Tensor& a, const Tensor& b, const Tensor& c) {
  if (c.device() != Device::cpu) return device_kernels(c.device()).gemm(p, a, b, c);
  const Tensor x = to_compute_dtype(a), y = to_compute_dtype(b),
               z = p.beta == 0 ? compute_buffer(c) : to_compute_dtype(c);
  const std::int64_t lda = p.a == Transpose::no ? p.k : p.m, ldb = p.b == Transpose::no ? p.n : p.k;
  dispatch(z.dtype(), "matmul", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < p.count; ++i)
      gemm(p.a, p.b, p.m, p.n, p.k, T(1), x.data<T>() + i * p.m * p.k, lda,
           y.data<T>() + i * p.k * p.n, ldb, T(p.beta), z.data<T>() + i * p.m * p.n, p.n);
  });
  convert_into(c, z);
}

}  // namespace ringside::autograd
