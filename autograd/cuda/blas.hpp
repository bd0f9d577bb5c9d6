// cuBLAS, opened when the first product is asked for: a program that is linked with it would load
// half a gigabyte at every start, also where there is no GPU.
#pragma once

#include "autograd/kernels/device_kernels.hpp"

namespace ringside::autograd::cuda {

// DeviceKernels::gemm on the calling thread's compute stream. fp32 in fp32, or in TF32 where
// RINGSIDE_TF32=1; bf16 added up in fp32. Throws Error where cuBLAS is not found, and where it
// fails.
void blas_gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace ringside::autograd::cuda
