// CpuKernels: the ops of the CPU. Each file in this folder has a few of them, forward and backward
// side by side: plain loops over rows or elements, divided among threads.
//
// bf16 numbers are converted where a loop reads and writes them, or before and after a loop that
// reads them often. Sums over many numbers are fp64.
#pragma once

#include "autograd/kernels/device_kernels.hpp"

namespace ringside::autograd {

class CpuKernels final : public DeviceKernels {
 public:
  DType sum_dtype() const override { return DType::fp64; }
  bool multiplies_bf16() const override;  // kernels/products/matrix_product.cpp
  bool attention_backward_reads_y() const override { return false; }

  // ---- copy.cpp ----
  void copy(const Tensor& x, const Tensor& y) const override;
  void fill(const Tensor& x, double value) const override;
  void fill_with(const Tensor& x, const Tensor& factor, double constant) const override;

  // ---- elementwise.cpp ----
  void add(const Tensor& a, const Tensor& b, const Tensor& y) const override;
  void multiply(const Tensor& a, const Tensor& b, const Tensor& y) const override;
  void sum_to(const Tensor& y, const Tensor& x) const override;
  void scale(const Tensor& x, double factor, const Tensor& y) const override;
  void scale_by(const Tensor& x, const Tensor& factor) const override;

  // ---- activation.cpp ----
  void relu(const Tensor& x, const Tensor& y) const override;
  void relu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override;
  void gelu(const Tensor& x, const Tensor& y) const override;
  void gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override;
  void silu(const Tensor& x, const Tensor& y) const override;
  void silu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override;
  void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) const override;
  void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                       const Tensor& dup) const override;

  // ---- sums.cpp ----
  void sum(const Tensor& x, double factor, const Tensor& total) const override;
  void sum_of_squares(std::span<const Tensor> all, const Tensor& total) const override;
  void mean_loss(const Tensor& losses, std::int64_t count, const Tensor& mean) const override;

  // ---- rms_norm.cpp ----
  void rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
                const Tensor& r) const override;
  void add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps,
                    const Tensor& sum, const Tensor& y, const Tensor& r) const override;
  void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& r,
                         const Tensor& dx, const Tensor& dweight) const override;

  // ---- rope.cpp, embedding.cpp, kernels/products/matrix_product.cpp ----
  void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, std::int64_t first_position,
            int direction, const Tensor& y) const override;
  void embedding(const Tensor& ids, const Tensor& weight, const Tensor& y) const override;
  Tensor embedding_index(const Tensor& ids) const override { return ids; }
  void embedding_backward(const Tensor& index, const Tensor& dy,
                          const Tensor& dweight) const override;
  void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b,
            const Tensor& c) const override;

  // ---- attention.cpp ----
  void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                 const Tensor& log_sums) const override {
    attention_to_block(q, k, v, true, y, log_sums);
  }
  void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& /*y*/,
                          const Tensor& log_sums, const Tensor& dy, const Tensor& dq,
                          const Tensor& dk, const Tensor& dv) const override {
    attention_to_block_backward(q, k, v, true, log_sums, {}, dy, dq, dk, dv);
  }
  // Where not `causal`, each query sees all keys. In backward log_sums and deltas [B, H, Tq] are
  // those of attention_block.hpp in ops/; without deltas the keys are all that a query sees.
  static void attention_to_block(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                 const Tensor& y, const Tensor& log_sums);
  static void attention_to_block_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                          bool causal, const Tensor& log_sums, const Tensor& deltas,
                                          const Tensor& dy, const Tensor& dq, const Tensor& dk,
                                          const Tensor& dv);

  // ---- cross_entropy.cpp, cross_entropy_with_gradient.cpp, divided_rows.cpp ----
  void cross_entropy(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                     const Tensor& losses, const Tensor& log_sums) const override;
  void cross_entropy_backward(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                              const Tensor& log_sums, std::int64_t count, const Tensor& dloss,
                              const Tensor& dz) const override;
  void cross_entropy_with_gradient(const Tensor& z, const Tensor& targets,
                                   std::int32_t ignore_index, double weight, const Tensor& losses,
                                   const Tensor& dz) const override;
  RowNumbers numbers_of_rows(const Tensor& z, const Tensor& targets) const override;
  void gradient_of_rows(const Tensor& z, const Tensor& targets, const Tensor& own_largest,
                        const RowNumbers& whole, double weight) const override;

  // ---- optimizers.cpp ----
  void adamw(const AdamWStep& step, std::span<const AdamWUpdate> updates) const override;
  void sgd(const SgdStep& step, std::span<const SgdUpdate> updates) const override;
};

}  // namespace ringside::autograd
