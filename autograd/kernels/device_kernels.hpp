// DeviceKernels: computes the ops on a device. It is one half of a device; the other half,
// DeviceMemory (tensor/device_memory.hpp), allocates and copies.
//
//     ops/*.cpp            checks, records, and chooses by device: on the CPU the loops beside the
//                          formulas, otherwise device_kernels(x.device()).rms_norm(...)
//     DeviceKernels        this interface: computation only
//     KernelsOn<Launcher>  its only implementation (kernels/shared/kernels_on.hpp): takes
//                          addresses, chooses the number of blocks, launches
//     kernels/shared/      the kernels, written once for the GPU and its emulation
//
// Rules for all members. Results are written into tensors that the caller has allocated on the same
// device. Arguments are not checked again: the op has checked them. Tensors are fp32 or bf16, all
// of one call alike, unless a comment says otherwise; "fp32" marks a tensor that is always fp32.
// Tensors are contiguous unless a comment says "any strides". Kernels add in a fixed order: equal
// calls give equal bits on the same device.
//
// Every call returns at once; see the compute stream in device_memory.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/kernels/matrix_product.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// A step of AdamW (formula: optim/adamw.hpp), and what it does to one parameter; `scale` multiplies
// the gradients:
//
//     p = keep p - step_size m / (sqrt(v) scale_v + eps)
//
// p, m and v are fp32; g is fp32 or bf16. `parameter` is bf16 and receives p rounded, or it is
// undefined.
struct AdamWStep {
  float beta1, beta2, eps, scale;
};
struct AdamWUpdate {
  Tensor p, g, m, v, parameter;
  float keep, step_size, scale_v;
};
// The same for SGD; m is undefined without momentum.
struct SgdStep {
  float momentum, scale;
  bool nesterov;
};
struct SgdUpdate {
  Tensor p, g, m, parameter;
  float learning_rate, decay;
};

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  // ---- Copying ----

  // y = x: same shapes, any strides. Also int32, and from bf16 to fp32 and back.
  virtual void copy(const Tensor& x, const Tensor& y) const = 0;
  // All elements of x = value; also int32.
  virtual void fill(const Tensor& x, double value) const = 0;
  // target += x: same shapes, any strides.
  virtual void accumulate(const Tensor& target, const Tensor& x) const = 0;

  // ---- Elementwise ----

  // Any strides; a and b are broadcast to y's shape as in NumPy.
  virtual void add(const Tensor& a, const Tensor& b, const Tensor& y) const = 0;
  virtual void subtract(const Tensor& a, const Tensor& b, const Tensor& y) const = 0;
  virtual void multiply(const Tensor& a, const Tensor& b, const Tensor& y) const = 0;
  // The reverse of broadcasting: each element of x = the sum of its copies in y.
  virtual void sum_to(const Tensor& y, const Tensor& x) const = 0;
  // y = factor x; y may be x. scale_all scales each tensor in place.
  virtual void scale(const Tensor& x, double factor, const Tensor& y) const = 0;
  virtual void scale_all(std::span<const Tensor> all, double factor) const = 0;
  // y = constant factor x, where `factor` is fp32 [1] on the device, so that the host need not wait
  // for it. y may be x; then nothing is written if constant factor is 1.
  virtual void scale_by(const Tensor& x, const Tensor& factor, double constant,
                        const Tensor& y) const = 0;
  // All elements of x = constant factor.
  virtual void fill_with(const Tensor& x, const Tensor& factor, double constant) const = 0;
  virtual void relu(const Tensor& x, const Tensor& y) const = 0;
  virtual void relu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  virtual void silu(const Tensor& x, const Tensor& y) const = 0;
  virtual void silu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  virtual void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) const = 0;
  virtual void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                               const Tensor& dgate, const Tensor& dup) const = 0;

  // ---- Sums ----

  // total = factor times the sum of x; both fp32, total is a scalar.
  virtual void sum(const Tensor& x, double factor, const Tensor& total) const = 0;
  // total (fp32 scalar) = factor times the sum of the squares of all elements; each tensor is fp32
  // or bf16.
  virtual void sum_of_squares(std::span<const Tensor> all, double factor,
                              const Tensor& total) const = 0;

  // ---- The Llama block ----

  // r, fp32 [rows], is 1 / RMS of each row; backward needs it.
  virtual void rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
                        const Tensor& r) const = 0;
  virtual void add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                            double eps, const Tensor& sum, const Tensor& y,
                            const Tensor& r) const = 0;
  virtual void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                 const Tensor& r, const Tensor& dx,
                                 const Tensor& dweight) const = 0;
  // x, y [..., T, D] of at most four dimensions, any strides with dense rows; cos, sin fp32
  // [positions, D/2]. Direction +1 rotates forward, -1 back.
  virtual void rope(const Tensor& x, const Tensor& cos, const Tensor& sin,
                    std::int64_t first_position, int direction, const Tensor& y) const = 0;
  // ids int32 [tokens], in 0..V-1, or -1 for a row of zeros.
  virtual void embedding(const Tensor& ids, const Tensor& weight, const Tensor& y) const = 0;
  // sorted int32 [2, tokens]: the ids in ascending order, and the token of each. dweight holds
  // zeros.
  virtual void embedding_backward(const Tensor& sorted, const Tensor& dy,
                                  const Tensor& dweight) const = 0;
  // Summed in fp32; c may be fp32 for bf16 a and b.
  virtual void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b,
                    const Tensor& c) const = 0;

  // q, y, dy, dq [B, H, Tq, D]; k, v, dk, dv [B, H_kv, Tk, D]; any strides with dense rows;
  // log_sums fp32 [B, H, Tq]. See causal_attention in ops.hpp.
  virtual void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                         const Tensor& log_sums) const = 0;
  virtual void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& y, const Tensor& log_sums, const Tensor& dy,
                                  const Tensor& dq, const Tensor& dk, const Tensor& dv) const = 0;

  // ---- Loss ----
  // z [rows, V]; targets int32 [rows]; losses and log_sums fp32 [rows]. A row whose target is
  // ignore_index has loss 0 and gradient 0. A row whose target is not in 0..V-1 has loss NaN and
  // gradient softmax(z) weight.

  virtual void cross_entropy(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                             const Tensor& losses, const Tensor& log_sums) const = 0;
  // dz = (softmax(z) - [v == target]) weight dloss; dloss is an fp32 scalar.
  virtual void cross_entropy_backward(const Tensor& z, const Tensor& targets,
                                      std::int32_t ignore_index, const Tensor& log_sums,
                                      double weight, const Tensor& dloss,
                                      const Tensor& dz) const = 0;
  // The losses and the gradient dz = (softmax(z) - [v == target]) weight in one pass. dz may be z,
  // or bf16 for z in fp32.
  virtual void cross_entropy_with_gradient(const Tensor& z, const Tensor& targets,
                                           std::int32_t ignore_index, double weight,
                                           const Tensor& losses, const Tensor& dz) const = 0;

  // ---- Optimizers ----
  // Many parameters in one call: one launch updates up to 48 of them (optimizer.hpp).

  virtual void adamw(const AdamWStep& step, std::span<const AdamWUpdate> updates) const = 0;
  virtual void sgd(const SgdStep& step, std::span<const SgdUpdate> updates) const = 0;

 protected:
  DeviceKernels() = default;
};

// The kernels of cuda or emulated. Throws Error that says what is missing if this build or machine
// has no such device, and for the CPU.
const DeviceKernels& device_kernels(Device device);

}  // namespace ringside::autograd
