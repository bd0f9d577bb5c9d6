// The kernels around the student's rows. The reference is ringside::autograd::CpuKernels
// (autograd/kernels/cpu/cpu_kernels.hpp).
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace student::autograd {

using ringside::autograd::Tensor;

struct CpuKernels {
  void rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
                const Tensor& r) const;
  void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& r,
                         const Tensor& dx, const Tensor& dweight) const;
  void cross_entropy(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                     const Tensor& losses, const Tensor& log_sums) const;
  void cross_entropy_backward(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                              const Tensor& log_sums, std::int64_t count, const Tensor& dloss,
                              const Tensor& dz) const;
};

}  // namespace student::autograd
