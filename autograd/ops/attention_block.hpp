// Attention to one block of keys at a time: what ring attention is made of (parallel/context/).
//
//     y, log_sums = attention to no key             empty_attention()
//     add_attention_block(q, k_0, v_0, ...)         y and log_sums: attention to block 0
//     add_attention_block(q, k_1, v_1, ...)         ... to blocks 0 and 1
//
// With log_sum = log sum exp(s) over the scores s of the keys so far, the outputs of two sets of
// keys are merged by y = exp(l_0 - l) y_0 + exp(l_1 - l) y_1, where l is their joint log_sum.
// Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). In backward each
// block needs only the joint log_sum and delta = sum y dy of a row: Dao, "FlashAttention-2" (2023),
// section 3.1.
//
// On the CPU only; these functions record no history.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// Of q [B, H, Tq, D]: y of its shape, in memory [B, Tq, H, D], and log_sums [B, H, Tq], both of the
// compute dtype. Throws Error if q is not on the CPU.
struct RunningAttention {
  Tensor y, log_sums;
};
RunningAttention empty_attention(const Tensor& q);

// Adds the keys of a block, k and v [B, H_kv, Tk, D], to what these queries see. Each query sees
// every key of it, or if `causal`, where Tq = Tk, those up to its own place. Strides are free but
// the last. Views of the parts of a longer `y` and `log_sums` are fine.
void add_attention_block(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                         const RunningAttention& sum);

// sum y dy of each row: [B, H, Tq].
Tensor attention_delta(const Tensor& y, const Tensor& dy);

// Adds the part of this block to dq, and writes its dk and dv, all three of the compute dtype.
// log_sums are those of all blocks together.
void add_attention_block_gradients(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                   const Tensor& log_sums, const Tensor& delta, const Tensor& dy,
                                   const Tensor& dq, const Tensor& dk, const Tensor& dv);

}  // namespace ringside::autograd
