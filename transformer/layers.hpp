// The parts of the Llama block: attention, the feed-forward part, and the two with their norms as
// one block.
//
// Members are named as the parameters of Hugging Face's LlamaForCausalLM are, for these names stand
// in checkpoints. Letters: B sequences, T tokens of each, H heads, D numbers per head.
#pragma once

#include "autograd/nn/layers.hpp"
#include "autograd/nn/module.hpp"
#include "autograd/ops/ops.hpp"
#include "transformer/config.hpp"

namespace ringside::transformer {

// What a block keeps of the tokens before, so that going on with a text does not compute it anew:
// their keys (turned by their positions) and values, both [B, H_kv, room, D], of which the first
// `seen` of each sequence are filled.
struct Past {
  autograd::Tensor keys, values;
  std::int64_t seen = 0;
};

// Causal attention of H query heads over H_kv key and value heads, queries and keys turned by their
// positions (RoPE). No biases.
class Attention : public autograd::Module {
 public:
  Attention(const Config& config, autograd::DType dtype);

  // x [B, T, d_model] -> same; `table` must have at least T positions. With a past, x are the T
  // tokens that follow those in it, and are in it afterwards; `table` and its room must have place
  // for all. No gradients go through a past.
  autograd::Tensor forward(const autograd::Tensor& x, const autograd::RopeTable& table,
                           Past* past = nullptr) const;

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
// The norms stand before their parts (pre-norm), so that the way along the bottom from y back to x
// is free of them.
class Block : public autograd::Module {
 public:
  Block(const Config& config, autograd::DType dtype);
  autograd::Tensor forward(const autograd::Tensor& x, const autograd::RopeTable& table,
                           Past* past = nullptr) const;  // as Attention

  autograd::RMSNorm input_layernorm;
  Attention self_attn;
  autograd::RMSNorm post_attention_layernorm;  // Llama's name; it stands after attention, before
                                               // the feed-forward part
  FeedForward mlp;
};

}  // namespace ringside::transformer
