// The ops: what a Llama-style model is made of, each with forward and backward side by side in
// ops/.
//
// Tensors are fp32 or fp64, all of one op alike; what a transformer is made of takes bf16 too
// (bf16.hpp), and its losses are fp32 then. ids and targets are int32. Unless said otherwise any
// strides are accepted, and results are new contiguous tensors. What does not fit throws Error: op,
// expected, seen. Views (reshape, transpose, narrow) are members of Tensor.
//
// Letters: B batch, T tokens of a sequence, H heads, D numbers per head, V vocabulary; ... any
// leading dimensions.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// --- ops/elementwise.cpp
// ------------------------------------------------------------------------------------------------------------

// a + b and a * b, each stretched along dimensions of size 1 and missing leading ones, as in NumPy.
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

// --- ops/matmul.cpp
// -----------------------------------------------------------------------------------------------------------------

// a [..., m, k] times b [..., k, n] -> [..., m, n]. The leading dimensions agree, or b has none and
// serves all of a's matrices.
Tensor matmul(const Tensor& a, const Tensor& b);

// x [..., in], weight [out, in], bias [out] or undefined -> x weight^T + bias [..., out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// --- ops/activation.cpp
// -------------------------------------------------------------------------------------------------------------

Tensor relu(const Tensor& x);
Tensor silu(const Tensor& x);  // x * sigmoid(x)
Tensor swiglu(const Tensor& gate,
              const Tensor& up);  // silu(gate) * up, same shapes. Shazeer, "GLU variants improve
                                  // Transformer" (2020)

// --- ops/rms_norm.cpp
// ---------------------------------------------------------------------------------------------------------------

// x [..., n], weight [n] -> x / sqrt(mean(x^2) + eps) * weight, the mean over the last dimension.
// Zhang and Sennrich (NeurIPS 2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5);

// The residual and the norm that follows it, in one pass over memory: sum = x + residual, normed =
// rms_norm(sum, weight, eps).
struct SumAndNorm {
  Tensor sum, normed;
};
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                        double eps = 1e-5);

// --- ops/rope.cpp
// -------------------------------------------------------------------------------------------------------------------

// cos and sin of position * theta^(-2i/D): both [positions, D/2]. Su et al., "RoFormer" (2021),
// section 3.2.
struct RopeTable {
  Tensor cos, sin;
};
RopeTable rope_table(std::int64_t positions, std::int64_t head_size, double theta = 10000,
                     DType dtype = DType::fp32);

// x [..., T, D] -> same, each row turned by its position: t + first_position for row t. Number i is
// paired with i + D/2 ("rotate half", as in Hugging Face's Llama, not the neighbours i, i+1 of the
// paper). The last stride must be 1. The result has the memory order of x, so that transposed views
// of [B, T, H, D] stay such.
Tensor rope(const Tensor& x, const RopeTable& table, std::int64_t first_position = 0);

// --- ops/embedding.cpp
// --------------------------------------------------------------------------------------------------------------

// ids int32 [...], weight [V, n] -> [..., n]. Throws if an id is not in 0..V-1.
Tensor embedding(const Tensor& ids, const Tensor& weight);

// --- ops/attention.cpp
// --------------------------------------------------------------------------------------------------------------

// q [B, H, Tq, D], k and v [B, H_kv, Tk, D], H a multiple of H_kv -> [B, H, Tq, D]: softmax(q k^T /
// sqrt(D)) v, where a query sees the keys up to its own position. Query head h reads key head h /
// (H / H_kv) (Ainslie et al., "GQA", 2023). With Tk > Tq, the queries are the last Tq of Tk
// positions (generation with a cache of keys). The last stride of each must be 1; others are free,
// so views of linear layers' outputs need no copy. The result is a transposed view of a contiguous
// [B, Tq, H, D]: y.transpose(1, 2).reshape({B, Tq, H * D}) is free.
//
// Probabilities are not kept but computed again in backward, from one number per row: Dao,
// "FlashAttention-2" (2023), section 3.1.
Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v);

// --- ops/cross_entropy.cpp
// ----------------------------------------------------------------------------------------------------------

// logits [..., V], targets int32 [...] -> scalar: the mean over tokens of -log
// softmax(logits)[target]. Targets equal to ignore_index do not count; if none is left, the loss is
// 0. Throws if a target is neither that nor in 0..V-1.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, std::int32_t ignore_index = -100);

// cross_entropy(linear(x, weight), targets) without the logits, which are the largest tensor of
// all: x [..., n], weight [V, n], targets int32
// [...] -> scalar. Only the logits of `rows_at_once` tokens are there at a time (0: of
// cross_entropy_rows()), and bf16's are fp32. What its result has a history for is computed at
// once, forward.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            std::int32_t ignore_index = -100, std::int64_t rows_at_once = 0);

// How many rows of logits are made at a time: 32 MiB of fp32, or 64 rows where that is more; equal
// parts of all.
std::int64_t cross_entropy_rows(std::int64_t tokens, std::int64_t vocabulary);

// --- ops/reduce.cpp
// -----------------------------------------------------------------------------------------------------------------

Tensor sum(const Tensor& x);   // scalar, accumulated in fp64
Tensor mean(const Tensor& x);  // scalar
Tensor mse_loss(const Tensor& x,
                const Tensor& target);  // scalar: mean of (x - target)^2, same shapes

}  // namespace ringside::autograd
