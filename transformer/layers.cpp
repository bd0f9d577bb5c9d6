#include "transformer/layers.hpp"

#include "base/error.hpp"

namespace ringside::transformer {

using autograd::DType;
using autograd::Linear;
using autograd::RopeTable;
using autograd::Tensor;

namespace {

// [B, T, heads * D] seen as [B, heads, T, D]: a view, nothing moves.
Tensor split_heads(const Tensor& x, std::int64_t heads, std::int64_t head_size) {
  return x.reshape({x.size(0), x.size(1), heads, head_size}).transpose(1, 2);
}

// Puts keys k and values v of T new tokens behind those that are there; k and v become all of them.
void remember(Past& past, Tensor& k, Tensor& v) {
  require(!autograd::grad_enabled(), "a past keeps no history: generate under NoGrad");
  const std::int64_t count = k.size(2);
  past.keys.narrow(2, past.seen, count).copy_(k);
  past.values.narrow(2, past.seen, count).copy_(v);
  past.seen += count;
  k = past.keys.narrow(2, 0, past.seen);
  v = past.values.narrow(2, 0, past.seen);
}

}  // namespace

Attention::Attention(const Config& config, DType dtype)
    : q_proj(config.d_model, config.heads * config.head_size(), false, {}, dtype),
      k_proj(config.d_model, config.kv_heads * config.head_size(), false, {}, dtype),
      v_proj(config.d_model, config.kv_heads * config.head_size(), false, {}, dtype),
      o_proj(config.heads * config.head_size(), config.d_model, false, {}, dtype),
      heads_(config.heads),
      kv_heads_(config.kv_heads),
      head_size_(config.head_size()) {
  register_module("q_proj", q_proj);
  register_module("k_proj", k_proj);
  register_module("v_proj", v_proj);
  register_module("o_proj", o_proj);
}

Tensor Attention::forward(const Tensor& x, const RopeTable& table, Past* past) const {
  return with_hooks([&] {
    const std::int64_t first = past == nullptr ? 0 : past->seen;
    const Tensor q =
        autograd::rope(split_heads(q_proj.forward(x), heads_, head_size_), table, first);
    Tensor k = autograd::rope(split_heads(k_proj.forward(x), kv_heads_, head_size_), table, first);
    Tensor v = split_heads(v_proj.forward(x), kv_heads_, head_size_);
    if (past != nullptr) remember(*past, k, v);
    const Tensor seen = autograd::causal_attention(q, k, v);  // [B, H, T, D]
    return o_proj.forward(
        seen.transpose(1, 2).reshape({x.size(0), x.size(1), heads_ * head_size_}));
  });
}

FeedForward::FeedForward(const Config& config, DType dtype)
    : gate_proj(config.d_model, config.d_ff, false, {}, dtype),
      up_proj(config.d_model, config.d_ff, false, {}, dtype),
      down_proj(config.d_ff, config.d_model, false, {}, dtype) {
  register_module("gate_proj", gate_proj);
  register_module("up_proj", up_proj);
  register_module("down_proj", down_proj);
}

Tensor FeedForward::forward(const Tensor& x) const {
  return with_hooks([&] {
    return down_proj.forward(autograd::swiglu(gate_proj.forward(x), up_proj.forward(x)));
  });
}

Block::Block(const Config& config, DType dtype)
    : input_layernorm(config.d_model, config.norm_epsilon, dtype),
      self_attn(config, dtype),
      post_attention_layernorm(config.d_model, config.norm_epsilon, dtype),
      mlp(config, dtype) {
  register_module("input_layernorm", input_layernorm);
  register_module("self_attn", self_attn);
  register_module("post_attention_layernorm", post_attention_layernorm);
  register_module("mlp", mlp);
}

Tensor Block::forward(const Tensor& x, const RopeTable& table, Past* past) const {
  return with_hooks([&] {
    const Tensor attended = self_attn.forward(input_layernorm.forward(x), table, past);
    const auto [sum, normed] = autograd::add_rms_norm(attended, x, post_attention_layernorm.weight,
                                                      post_attention_layernorm.eps);
    return sum + mlp.forward(normed);
  });
}

}  // namespace ringside::transformer
