// The parts of the Llama block: attention, the feed-forward part, and the two with their norms as one block.
//
// Members are named as the parameters of Hugging Face's LlamaForCausalLM are, for these names stand in checkpoints.
// Letters: B sequences, T tokens of each, H heads, D numbers per head.
#pragma once

#include "autograd/layers.hpp"
#include "autograd/module.hpp"
#include "autograd/ops.hpp"
#include "transformer/config.hpp"

namespace ringside::transformer {

// Causal attention of H query heads over H_kv key and value heads, queries and keys turned by their positions (RoPE). No biases.
class Attention : public autograd::Module {
 public:
  Attention(const Config& config, autograd::DType dtype);

  // x [B, T, d_model] -> same; `table` must have at least T positions.
  autograd::Tensor forward(const autograd::Tensor& x, const autograd::RopeTable& table) const;

  autograd::Linear q_proj, k_proj, v_proj, o_proj;

 private:
  std::int64_t heads_, kv_heads_, head_size_;
};

// down(silu(gate(x)) * up(x)): Shazeer, "GLU variants improve Transformer" (2020), equation 6.
class FeedForward : public autograd::Module {
 public:
  FeedForward(const Config& config, autograd::DType dtype);
  autograd::Tensor forward(const autograd::Tensor& x) const;  // [B, T, d_model] -> same

  autograd::Linear gate_proj, up_proj, down_proj;
};

//     x ──┬── norm ── attention ──(+)──┬── norm ── feed-forward ──(+)── y
//         └────────────────────────┘   └───────────────────────────┘
//
// The norms stand before their parts (pre-norm), so that the way along the bottom from y back to x is free of them.
class Block : public autograd::Module {
 public:
  Block(const Config& config, autograd::DType dtype);
  autograd::Tensor forward(const autograd::Tensor& x, const autograd::RopeTable& table) const;  // [B, T, d_model] -> same

  autograd::RMSNorm input_layernorm;
  Attention self_attn;
  autograd::RMSNorm post_attention_layernorm;  // Llama's name; it stands after attention, before the feed-forward part
  FeedForward mlp;
};

}  // namespace ringside::transformer
