// DeviceKernels: computes the ops on a device. It is one half of a device; the other half,
// DeviceMemory (tensor/device_memory.hpp), allocates and copies.
//
//     ops/*.cpp            checks, allocates, records: kernels_of(x).rms_norm(x, weight, ...)
//     DeviceKernels        this interface: computation only
//     CpuKernels           on the CPU (kernels/cpu/): loops beside their formulas
//     KernelsOn<Launcher>  on cuda and emulated (kernels/shared/kernels_on.hpp): takes addresses,
//                          chooses the number of blocks, launches
//     kernels/shared/      the kernels that it launches, written once for the GPU and its emulation
//
// Rules for all members. Results are written into tensors that the caller has allocated on the same
// device. Arguments are not checked again: the op has checked them. Tensors are fp32 or bf16, on
// the CPU also fp64; all of one call alike, unless a comment says otherwise. "compute dtype" marks
// a tensor of compute_dtype() of the others: fp32 for bf16. Tensors are contiguous unless a comment
// says "any strides". Kernels add in a fixed order: equal calls give equal bits on the same device.
//
// On a GPU every call returns at once; see the compute stream in device_memory.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/kernels/products/matrix_product.hpp"
#include "autograd/kernels/row_numbers.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// A step of AdamW (formula: optim/adamw.hpp), and what it does to one parameter; `scale` multiplies
// the gradients:
//
//     p = keep p - step_size m / (sqrt(v) scale_v + eps)
//
// p, m and v have the compute dtype; g is the gradient in that dtype or in bf16. `parameter` is
// bf16 and receives p rounded, or it is undefined.
struct AdamWStep {
  double beta1, beta2, eps, scale;
};
struct AdamWUpdate {
  Tensor p, g, m, v, parameter;
  double keep, step_size, scale_v;
};
// The same for SGD; m is undefined without momentum.
struct SgdStep {
  double momentum, scale;
  bool nesterov;
};
struct SgdUpdate {
  Tensor p, g, m, parameter;
  double learning_rate, decay;
};

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  // ---- What ops ask before they allocate ----

  // The dtype of sums over many numbers: of losses before their mean, of squares.
  virtual DType sum_dtype() const = 0;
  // Whether gemm takes bf16 operands as they are. Otherwise it converts them in each call.
  virtual bool multiplies_bf16() const = 0;
  // Whether attention_backward reads y. Otherwise y may be undefined there.
  virtual bool attention_backward_reads_y() const = 0;

  // ---- Copying ----

  // y = x: same shapes, any strides. Also int32, and from bf16 to fp32 and back.
  virtual void copy(const Tensor& x, const Tensor& y) const = 0;
  // All elements of x = value; also int32.
  virtual void fill(const Tensor& x, double value) const = 0;

  // ---- Elementwise ----

  // Any strides; a and b are broadcast to y's shape as in NumPy. y may be a.
  virtual void add(const Tensor& a, const Tensor& b, const Tensor& y) const = 0;
  virtual void multiply(const Tensor& a, const Tensor& b, const Tensor& y) const = 0;
  // The reverse of broadcasting: each element of x = the sum of its copies in y. y of any strides.
  virtual void sum_to(const Tensor& y, const Tensor& x) const = 0;
  // y = factor x; x of any strides. y may be x.
  virtual void scale(const Tensor& x, double factor, const Tensor& y) const = 0;
  // x = factor x, where `factor` is a scalar of the compute dtype on the device, so that the host
  // need not wait for it. Nothing is written if it is 1.
  virtual void scale_by(const Tensor& x, const Tensor& factor) const = 0;
  // All elements of x = constant factor.
  virtual void fill_with(const Tensor& x, const Tensor& factor, double constant) const = 0;
  virtual void relu(const Tensor& x, const Tensor& y) const = 0;
  virtual void relu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  virtual void gelu(const Tensor& x, const Tensor& y) const = 0;
  virtual void gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  virtual void silu(const Tensor& x, const Tensor& y) const = 0;
  virtual void silu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  virtual void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) const = 0;
  virtual void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                               const Tensor& dgate, const Tensor& dup) const = 0;

  // ---- Sums ----

  // The results are scalars. total = factor times the sum of x; not bf16.
  virtual void sum(const Tensor& x, double factor, const Tensor& total) const = 0;
  // total, of sum_dtype(), = the sum of the squares of all elements; the dtypes may differ.
  virtual void sum_of_squares(std::span<const Tensor> all, const Tensor& total) const = 0;
  // mean = the sum of the losses, of sum_dtype(), divided by count.
  virtual void mean_loss(const Tensor& losses, std::int64_t count, const Tensor& mean) const = 0;

  // ---- The Llama block ----

  // r [rows], of the compute dtype, is 1 / RMS of each row; backward needs it.
  virtual void rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
                        const Tensor& r) const = 0;
  virtual void add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                            double eps, const Tensor& sum, const Tensor& y,
                            const Tensor& r) const = 0;
  virtual void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                 const Tensor& r, const Tensor& dx,
                                 const Tensor& dweight) const = 0;
  // x, y [..., T, D], any strides with dense rows; cos, sin [positions, D/2] of the compute dtype.
  // Direction +1 rotates forward, -1 back.
  virtual void rope(const Tensor& x, const Tensor& cos, const Tensor& sin,
                    std::int64_t first_position, int direction, const Tensor& y) const = 0;
  // ids int32 [tokens], in 0..V-1, or -1 for a row of zeros.
  virtual void embedding(const Tensor& ids, const Tensor& weight, const Tensor& y) const = 0;
  // ids, int32 on the CPU -> the index that embedding_backward reads.
  virtual Tensor embedding_index(const Tensor& ids) const = 0;
  // dweight holds zeros.
  virtual void embedding_backward(const Tensor& index, const Tensor& dy,
                                  const Tensor& dweight) const = 0;
  // bf16 products are summed in fp32; c may be fp32 for bf16 a and b.
  virtual void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b,
                    const Tensor& c) const = 0;

  // q, y, dy, dq [B, H, Tq, D]; k, v, dk, dv [B, H_kv, Tk, D]; any strides with dense rows;
  // log_sums [B, H, Tq] of the compute dtype. See causal_attention in ops.hpp.
  virtual void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                         const Tensor& log_sums) const = 0;
  virtual void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& y, const Tensor& log_sums, const Tensor& dy,
                                  const Tensor& dq, const Tensor& dk, const Tensor& dv) const = 0;

  // ---- Loss ----
  // z [rows, V]; targets int32 [rows]; losses [rows] of sum_dtype(); log_sums [rows] of the compute
  // dtype. A row whose target is ignore_index has loss 0 and gradient 0.

  // log_sums, which backward needs, may be undefined.
  virtual void cross_entropy(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                             const Tensor& losses, const Tensor& log_sums) const = 0;
  // dz = (softmax(z) - [v == target]) dloss / count; dloss is a scalar of the compute dtype.
  virtual void cross_entropy_backward(const Tensor& z, const Tensor& targets,
                                      std::int32_t ignore_index, const Tensor& log_sums,
                                      std::int64_t count, const Tensor& dloss,
                                      const Tensor& dz) const = 0;
  // The losses and the gradient dz = (softmax(z) - [v == target]) weight in one pass. dz may be z,
  // or bf16 for z in fp32. z may be overwritten.
  virtual void cross_entropy_with_gradient(const Tensor& z, const Tensor& targets,
                                           std::int32_t ignore_index, double weight,
                                           const Tensor& losses, const Tensor& dz) const = 0;

  // Where the columns of the logits are divided over ranks (ops/losses/divided_losses.hpp), with
  // targets as row_numbers.hpp says: the numbers of each row, of this rank's columns, and the
  // gradient from those of the whole rows. The first may overwrite z with what the second wants to
  // find there; the second writes the gradient over z. The host waits for both.
  virtual RowNumbers numbers_of_rows(const Tensor& z, const Tensor& targets) const = 0;
  virtual void gradient_of_rows(const Tensor& z, const Tensor& targets, const Tensor& own_largest,
                                const RowNumbers& whole, double weight) const = 0;

  // ---- Optimizers ----
  // Many parameters in one call: one launch on a GPU updates up to 48 of them (optimizer.hpp).

  virtual void adamw(const AdamWStep& step, std::span<const AdamWUpdate> updates) const = 0;
  virtual void sgd(const SgdStep& step, std::span<const SgdUpdate> updates) const = 0;

 protected:
  DeviceKernels() = default;
};

// Throws Error that says what is missing if this build or machine has no such device.
const DeviceKernels& device_kernels(Device device);
inline const DeviceKernels& kernels_of(const Tensor& x) {
  return device_kernels(x.device());
}

}  // namespace ringside::autograd
