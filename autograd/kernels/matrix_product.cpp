#include "autograd/kernels/matrix_product.hpp"

#include "autograd/kernels/bf16_products.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"

namespace ringside::autograd {

namespace {

// A is the type of the operands, T that of the sums.
template <class A, class T>
void multiply_all(const MatrixProduct& p, const A* a, const A* b, T* c) {
  const std::int64_t lda = p.a == Transpose::no ? p.k : p.m, ldb = p.b == Transpose::no ? p.n : p.k;
  for (std::int64_t i = 0; i < p.count; ++i)
    gemm(p.a, p.b, p.m, p.n, p.k, T(1), a + i * p.m * p.k, lda, b + i * p.k * p.n, ldb, T(p.beta),
         c + i * p.m * p.n, p.n);
}

}  // namespace

void multiply(const MatrixProduct& p, const Tensor& a, const Tensor& b, const Tensor& c) {
  if (c.device() != Device::cpu) return device_kernels(c.device()).gemm(p, a, b, c);
  const Tensor sums = p.beta == 0 ? compute_buffer(c) : to_compute_dtype(c);
  if (a.dtype() == DType::bf16 && has_bf16_products()) {
    multiply_all(p, a.data<Bf16>(), b.data<Bf16>(), sums.data<float>());
  } else {
    const Tensor x = to_compute_dtype(a), y = to_compute_dtype(b);
    dispatch(sums.dtype(), "matmul", [&](auto zero) {
      using T = decltype(zero);
      multiply_all(p, x.data<T>(), y.data<T>(), sums.data<T>());
    });
  }
  convert_into(c, sums);
}

}  // namespace ringside::autograd
