// The kernels around the student's functions. The reference is ringside::autograd::CpuKernels
// (autograd/kernels/cpu/cpu_kernels.hpp).
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace student::autograd {

using ringside::autograd::Tensor;

struct CpuKernels {
  static void attention_to_block(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                 const Tensor& y, const Tensor& log_sums);
  static void attention_to_block_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                          bool causal, const Tensor& log_sums, const Tensor& deltas,
                                          const Tensor& dy, const Tensor& dq, const Tensor& dk,
                                          const Tensor& dv);
};

}  // namespace student::autograd
