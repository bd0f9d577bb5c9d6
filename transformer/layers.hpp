// The layers of a Llama block: attention, feed-forward, and the block itself.
//
// Members have the names of Hugging Face's LlamaForCausalLM, because checkpoints store them.
// Shapes use B sequences, T tokens per sequence, H heads, D numbers per head.
//
// The layers compute through ModelRanks; on one rank, column and row are linear. Of t ranks, each
// has H / t heads, H_kv / t key and value heads (but at least 1) and d_ff / t numbers inside the
// feed-forward part. The ModelRanks must outlive the layers. If they divide the sequence, x and y
// have T / t tokens. With context parallel T are the tokens of a rank.
#pragma once

#include <optional>

#include "autograd/nn/layers.hpp"
#include "autograd/nn/module.hpp"
#include "autograd/ops/ops.hpp"
#include "transformer/config.hpp"
#include "transformer/experts.hpp"
#include "transformer/model_ranks.hpp"

namespace ringside::transformer {

// The keys and values of earlier tokens in one block, so that generation computes each token once.
// Both tensors are [B, H_kv, capacity, D]. The first `length` positions of each sequence are valid.
// Keys are stored after the rotation by their positions.
struct KvCache {
  autograd::Tensor keys, values;
  std::int64_t length = 0;
};

// Causal attention with rotary positions (RoPE) and without biases: H query heads share H_kv key
// and value heads.
class Attention : public autograd::Module {
 public:
  Attention(const Config& config, autograd::DType dtype, const ModelRanks& ranks);

  // x [B, T, d_model] -> the same shape. `table` has at least T positions.
  //
  // With a cache, x holds the T tokens that follow the cached ones, and the call appends them to
  // the cache. Its capacity and `table` must have room for all of them. Throws Error unless it
  // runs under NoGrad: gradients do not flow through a cache.
  autograd::Tensor forward(const autograd::Tensor& x, const autograd::RopeTable& table,
                           KvCache* cache = nullptr) const;

 private:
  const ModelRanks& ranks_;
  std::int64_t heads_, kv_heads_, head_size_;  // of this rank

 public:
  autograd::Linear q_proj, k_proj, v_proj, o_proj;
  std::optional<autograd::RMSNorm> q_norm, k_norm;  // of each head: Config::qk_norm
};

// down(silu(gate(x)) * up(x)): Shazeer, "GLU variants improve Transformer" (2020), equation 6.
class FeedForward : public autograd::Module {
 public:
  FeedForward(const Config& config, autograd::DType dtype, const ModelRanks& ranks);
  autograd::Tensor forward(const autograd::Tensor& x) const;  // [B, T, d_model] -> the same shape

  autograd::Linear gate_proj, up_proj, down_proj;

 private:
  const ModelRanks& ranks_;
};

//     x ──┬── norm ── attention ──(+)──┬── norm ── feed-forward ──(+)── y
//         └────────────────────────┘   └───────────────────────────┘
//
// Each norm comes before its part (pre-norm), so the residual path from x to y contains no norm.
class Block : public autograd::Module {
 public:
  Block(const Config& config, autograd::DType dtype, const ModelRanks& ranks);

  // Arguments and result as in Attention::forward.
  autograd::Tensor forward(const autograd::Tensor& x, const autograd::RopeTable& table,
                           KvCache* cache = nullptr) const;

  autograd::RMSNorm input_layernorm;
  Attention self_attn;
  // Llama's name for the norm before the feed-forward part.
  autograd::RMSNorm post_attention_layernorm;
  // The feed-forward part is one of the two.
  std::optional<FeedForward> mlp;
  std::optional<MixtureOfExperts> block_sparse_moe;  // mlp of a Qwen3-MoE
};

}  // namespace ringside::transformer
