// DeviceKernels: what a device computes for the ops. The upper half of what a device is; the lower
// is device_memory.hpp.
//
//     ops/*.cpp          checks, history (record), what is saved for backward: one text for all devices
//       numerics         on the CPU the loops there; otherwise: device_kernels(x.device()).rms_norm(x, w, y, r, eps)
//     DeviceKernels      this interface: numerics only
//       KernelsOn<Launcher>   its one implementation (cuda/kernels_on.hpp): takes addresses, chooses how many blocks, launches
//         kernels/*.hpp       the kernels, one text for GPU and CPU (cuda/block.hpp)
//
// Results are written into tensors that the caller has made, on the same device. Nothing here
// checks what an op has checked. Tensors are fp32 or bf16, all of one call alike unless said
// otherwise, and contiguous unless "any strides" is said; `fp32` names those that always are.
// Kernels add in a fixed order: equal calls give equal bits on the same device.
//
// Every call returns at once; see the compute stream in device_memory.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/kernels/gemm.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// `count` products C = op(A) op(B) + beta C of contiguous matrices that follow each other; op(A) is
// m x k, op(B) is k x n.
struct MatrixProduct {
  Transpose a = Transpose::no, b = Transpose::no;
  std::int64_t m = 0, n = 0, k = 0, count = 1;
  float beta = 0;  // 0 or 1
};

// One update of AdamW, in the letters of optimizer.cpp:  p = keep p - step_size m / (sqrt(v)
// scale_v + eps),  the gradient times `scale`.
struct AdamWStep {
  float beta1, beta2, eps, keep, step_size, scale_v, scale;
};
struct SgdStep {
  float learning_rate, decay, momentum, scale;
  bool nesterov;
};

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  // ---- Moving numbers ----
  virtual void copy(const Tensor& x,
                    const Tensor& y)
      const = 0;  // y = x, same shapes, any strides; types also int32; bf16 to fp32 and back
  virtual void fill(const Tensor& x, double value) const = 0;  // also int32
  virtual void accumulate(const Tensor& target,
                          const Tensor& x) const = 0;  // target += x, same shapes, any strides

  // ---- Element by element ----
  virtual void add(
      const Tensor& a, const Tensor& b,
      const Tensor& y) const = 0;  // any strides, a and b stretched to y's shape as in NumPy
  virtual void subtract(const Tensor& a, const Tensor& b, const Tensor& y) const = 0;
  virtual void multiply(const Tensor& a, const Tensor& b, const Tensor& y) const = 0;
  virtual void sum_to(const Tensor& y,
                      const Tensor& x)
      const = 0;  // the reverse of stretching: x = sum of y over the copies of each element
  virtual void scale(const Tensor& x, double factor,
                     const Tensor& y) const = 0;  // y = factor x; y may be x
  virtual void scale_all(std::span<const Tensor> all, double factor) const = 0;  // in place
  // y = constant factor x with `factor`, fp32 [1], on the device: so that no host waits for it. y
  // may be x, which is left alone if that is 1.
  virtual void scale_by(const Tensor& x, const Tensor& factor, double constant,
                        const Tensor& y) const = 0;
  virtual void fill_with(const Tensor& x, const Tensor& factor,
                         double constant) const = 0;  // x = constant factor, everywhere
  virtual void relu(const Tensor& x, const Tensor& y) const = 0;
  virtual void relu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  virtual void silu(const Tensor& x, const Tensor& y) const = 0;
  virtual void silu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const = 0;
  virtual void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) const = 0;
  virtual void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                               const Tensor& dgate, const Tensor& dup) const = 0;

  // ---- Sums ----
  // total, fp32 [], = factor times the sum of x, fp32; or of the squares of all numbers of several
  // tensors, each fp32 or bf16.
  virtual void sum(const Tensor& x, double factor, const Tensor& total) const = 0;
  virtual void sum_of_squares(std::span<const Tensor> all, double factor,
                              const Tensor& total) const = 0;

  // ---- The Llama block ----
  virtual void rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
                        const Tensor& r) const = 0;  // r: fp32 [rows]
  virtual void add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                            double eps, const Tensor& sum, const Tensor& y,
                            const Tensor& r) const = 0;
  virtual void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                 const Tensor& r, const Tensor& dx,
                                 const Tensor& dweight) const = 0;
  // x, y [..., T, D] of at most four dimensions, any strides but dense rows; cos and sin fp32
  // [positions, D/2]; direction -1 turns back.
  virtual void rope(const Tensor& x, const Tensor& cos, const Tensor& sin,
                    std::int64_t first_position, int direction, const Tensor& y) const = 0;
  virtual void embedding(const Tensor& ids, const Tensor& weight,
                         const Tensor& y) const = 0;  // ids int32, checked
  virtual void embedding_backward(const Tensor& ids, const Tensor& dy,
                                  const Tensor& dweight) const = 0;
  virtual void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b,
                    const Tensor& c) const = 0;  // added up in fp32; c may be fp32 for bf16 a, b

  // q, y, dy, dq [B, H, Tq, D], k, v, dk, dv [B, H_kv, Tk, D], any strides but dense rows; log_sums
  // fp32 [B, H, Tq]. As causal_attention in ops.hpp.
  virtual void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                         const Tensor& log_sums) const = 0;
  virtual void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& y, const Tensor& log_sums, const Tensor& dy,
                                  const Tensor& dq, const Tensor& dk, const Tensor& dv) const = 0;

  // ---- Loss: z [rows, V], targets int32 [rows], checked; losses and log_sums fp32 [rows]; a row
  // whose target is ignored has loss 0 ----
  virtual void cross_entropy(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                             const Tensor& losses, const Tensor& log_sums) const = 0;
  // dz = (softmax(z) - [v == target]) weight dloss, dloss fp32 [].
  virtual void cross_entropy_backward(const Tensor& z, const Tensor& targets,
                                      std::int32_t ignore_index, const Tensor& log_sums,
                                      double weight, const Tensor& dloss,
                                      const Tensor& dz) const = 0;
  // Losses, and the gradient dz = (softmax(z) - [v == target]) weight: in the place of z, or bf16
  // for z in fp32.
  virtual void cross_entropy_with_gradient(const Tensor& z, const Tensor& targets,
                                           std::int32_t ignore_index, double weight,
                                           const Tensor& losses, const Tensor& dz) const = 0;

  // ---- Optimizers: p, m, v fp32; g fp32 or bf16; kept: a bf16 tensor that becomes p, rounded, or
  // undefined ----
  virtual void adamw(const AdamWStep& step, const Tensor& p, const Tensor& g, const Tensor& m,
                     const Tensor& v, const Tensor& kept) const = 0;
  virtual void sgd(const SgdStep& step, const Tensor& p, const Tensor& g, const Tensor& m,
                   const Tensor& kept) const = 0;  // m: undefined without momentum

 protected:
  DeviceKernels() = default;
};

// Of cuda or emulated. Throws Error, with a sentence that says what is missing, where there is no
// such device, and for the CPU.
const DeviceKernels& device_kernels(Device device);

}  // namespace ringside::autograd
