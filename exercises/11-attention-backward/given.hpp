// The kernels around the student's functions. The reference is ringside::autograd::CpuKernels
// (autograd/kernels/cpu/cpu_kernels.hpp).
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace student::autograd {

using ringside::autograd::Tensor;

struct CpuKernels {
  void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                 const Tensor& log_sums) const;
  void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                          const Tensor& log_sums, const Tensor& dy, const Tensor& dq,
                          const Tensor& dk, const Tensor& dv) const;
};

}  // namespace student::autograd
