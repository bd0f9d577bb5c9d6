#include "autograd/kernels/products/matrix_product.hpp"

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/products/bf16_products.hpp"

namespace ringside::autograd {

void multiply(const MatrixProduct& product, const Tensor& a, const Tensor& b, const Tensor& c) {
  kernels_of(c).gemm(product, a, b, c);
}

bool CpuKernels::multiplies_bf16() const {
  return has_bf16_products();
}

void CpuKernels::gemm(const MatrixProduct& p, const Tensor& a, const Tensor& b,
                      const Tensor& c) const {
  const Tensor sums = p.beta == 0 ? compute_buffer(c) : to_compute_dtype(c);
  if (a.dtype() == DType::bf16 && has_bf16_products()) {
    multiply_at(p, a.data<Bf16>(), b.data<Bf16>(), sums.data<float>());
  } else {
    const Tensor x = to_compute_dtype(a), y = to_compute_dtype(b);
    dispatch(sums.dtype(), "matmul",
             [&]<class T>(T) { multiply_at(p, x.data<T>(), y.data<T>(), sums.data<T>()); });
  }
  convert_into(c, sums);
}

}  // namespace ringside::autograd
