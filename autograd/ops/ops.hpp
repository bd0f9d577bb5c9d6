// The ops of a Llama-style model. Their loops stand in kernels/cpu/, forward and backward together.
//
// All tensors of one op have one dtype, fp32 or fp64, and one device. The ops of the transformer
// also take bf16 (tensor/bf16.hpp); a loss of bf16 inputs is fp32. ids and targets are int32. Any
// strides are accepted, and results are new contiguous tensors, unless a comment says otherwise. An
// argument that does not fit throws Error: op, expected, seen. Views (reshape, transpose, narrow)
// are members of Tensor.
//
// Letters: B batch, T tokens of a sequence, H heads, D elements per head, V vocabulary; ... any
// leading dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// ---- ops/elementwise.cpp ----

// a + b and a * b. Dimensions of size 1 and missing leading ones are broadcast, as in NumPy.
Tensor add(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& x, double factor);
inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator*(const Tensor& x, double factor) {
  return scale(x, factor);
}

// ---- ops/matmul.cpp ----

// a [..., m, k] times b [..., k, n] -> [..., m, n]. The leading dimensions are equal, or b has none
// and multiplies all matrices of a.
Tensor matmul(const Tensor& a, const Tensor& b);

// x [..., in], weight [out, in], bias [out] or undefined -> x weight^T + bias [..., out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// ---- ops/activation.cpp ----

Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x);  // x * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
Tensor silu(const Tensor& x);  // x * sigmoid(x)
// silu(gate) * up, same shapes. Shazeer, "GLU variants improve Transformer" (2020).
Tensor swiglu(const Tensor& gate, const Tensor& up);

// ---- ops/rms_norm.cpp ----

// x [..., n], weight [n] -> x / sqrt(mean(x^2) + eps) * weight, the mean over the last dimension.
// Zhang and Sennrich, "Root mean square layer normalization" (NeurIPS 2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5);

// A residual connection and the norm after it in one pass over memory: sum = x + residual, normed =
// rms_norm(sum, weight, eps).
struct SumAndNorm {
  Tensor sum, normed;
};
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                        double eps = 1e-5);

// ---- ops/rope.cpp ----

// cos and sin of position * theta^(-2i/D), both [positions, D/2]. Su et al., "RoFormer" (2021),
// section 3.2.
struct RopeTable {
  Tensor cos, sin;
};
RopeTable rope_table(std::int64_t positions, std::int64_t head_size, double theta = 10000,
                     DType dtype = DType::fp32);
// The same with D/2 frequencies of the caller's choice in place of theta^(-2i/D), such as those
// that were scaled for longer sequences.
RopeTable rope_table(std::int64_t positions, const std::vector<double>& frequencies, DType dtype);

// x [..., T, D] -> same: row t is rotated by the angles of position first_position + t. Element i
// is paired with i + D/2 ("rotate half", as in Hugging Face's Llama; the paper pairs neighbours).
// The last stride of x must be 1. The result has the memory order of x, so a transposed view gives
// a transposed view.
Tensor rope(const Tensor& x, const RopeTable& table, std::int64_t first_position = 0);

// ---- ops/embedding.cpp ----

// ids int32 [...], weight [V, n] -> [..., n]. Throws if an id is not in 0..V-1.
Tensor embedding(const Tensor& ids, const Tensor& weight);

// ---- ops/attention.cpp ----

// q [B, H, Tq, D], k and v [B, H_kv, Tk, D], H a multiple of H_kv -> [B, H, Tq, D]:
//
//     softmax(q k^T / sqrt(D)) v
//
// where each query sees the keys up to its own position. Query head h reads key head
// h / (H / H_kv): Ainslie et al., "GQA" (2023). With Tk > Tq the queries are the last Tq of Tk
// positions, as in generation with a KV cache.
//
// The last stride of each input must be 1; the others are free, so views of the outputs of linear
// layers need no copy. The result is a transposed view of a contiguous [B, Tq, H, D]:
// y.transpose(1, 2).reshape({B, Tq, H * D}) copies nothing.
//
// The probabilities are not saved: backward computes them again from one saved number per row. Dao,
// "FlashAttention-2" (2023), section 3.1.
Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v);

// ---- ops/losses/cross_entropy.cpp ----

// logits [..., V], targets int32 [...] -> scalar:
//
//     the mean over tokens of -log softmax(logits)[target]
//
// Tokens whose target is ignore_index do not count; if no token counts, the loss is 0. Throws if a
// target is neither ignore_index nor in 0..V-1.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, std::int32_t ignore_index = -100);

// ---- ops/losses/linear_cross_entropy.cpp ----

// cross_entropy(linear(x, weight), targets) without storing all logits, the largest tensor of a
// model: x [..., n], weight [V, n], targets int32 [...] -> scalar. At any time only the logits of
// `rows_at_once` tokens exist (0 means cross_entropy_rows()); those of bf16 are fp32. Gradients are
// computed during forward.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            std::int32_t ignore_index = -100, std::int64_t rows_at_once = 0);

// The number of rows of logits in one block: as many as fit into 32 MiB of fp32, or 512 MiB on a
// device, but at least 64. The blocks of all tokens are nearly equal.
std::int64_t cross_entropy_rows(std::int64_t tokens, std::int64_t vocabulary,
                                Device device = Device::cpu);

// ---- ops/reduce.cpp ----

Tensor sum(const Tensor& x);   // scalar, summed in fp64
Tensor mean(const Tensor& x);  // scalar
// The mean of (x - target)^2, a scalar; same shapes.
Tensor mse_loss(const Tensor& x, const Tensor& target);

}  // namespace ringside::autograd
