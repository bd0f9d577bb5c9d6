// Matrix products by cuBLAS. The library is opened at the first product: a program linked with it
// would load half a gigabyte at every start, even without a GPU.
#pragma once

#include "autograd/kernels/device_kernels.hpp"

namespace ringside::autograd::cuda {

// DeviceKernels::gemm on the calling thread's compute stream. fp32 is computed in fp32, or in TF32
// if RINGSIDE_TF32=1; bf16 is summed in fp32. Throws Error if cuBLAS is not found or fails.
void blas_gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace ringside::autograd::cuda
