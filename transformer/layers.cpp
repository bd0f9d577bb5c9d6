#include "transformer/layers.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringside::transformer {

using autograd::DType;
using autograd::Linear;
using autograd::RopeTable;
using autograd::Tensor;

namespace {

// A view of [B, T, heads * D] as [B, heads, T, D]; copies nothing, but where there is a norm.
Tensor split_heads(const Tensor& x, std::int64_t heads, std::int64_t head_size,
                   const std::optional<autograd::RMSNorm>& norm = {}) {
  const Tensor of_heads = x.reshape({x.size(0), x.size(1), heads, head_size});
  return (norm ? norm->forward(of_heads) : of_heads).transpose(1, 2);
}

// Appends k and v [B, H_kv, T, D] of T new tokens to the cache, and replaces k and v by views of
// all cached positions.
void append_to_cache(KvCache& cache, Tensor& k, Tensor& v) {
  require(!autograd::grad_enabled(),
          "a KV cache records no gradients: run the forward pass under NoGrad");
  const std::int64_t count = k.size(2);
  cache.keys.narrow(2, cache.length, count).copy_(k);
  cache.values.narrow(2, cache.length, count).copy_(v);
  cache.length += count;
  k = cache.keys.narrow(2, 0, cache.length);
  v = cache.values.narrow(2, 0, cache.length);
}

}  // namespace

Attention::Attention(const Config& config, DType dtype, const ModelRanks& ranks)
    : ranks_(ranks),
      heads_(config.heads / ranks.size()),
      kv_heads_(std::max<std::int64_t>(1, config.kv_heads / ranks.size())),
      head_size_(config.head_size()),
      q_proj(config.d_model, heads_ * head_size_, false, {}, dtype),
      k_proj(config.d_model, kv_heads_ * head_size_, false, {}, dtype),
      v_proj(config.d_model, kv_heads_ * head_size_, false, {}, dtype),
      o_proj(heads_ * head_size_, config.d_model, false, {}, dtype) {
  register_module("q_proj", q_proj);
  register_module("k_proj", k_proj);
  register_module("v_proj", v_proj);
  register_module("o_proj", o_proj);
  if (!config.qk_norm) return;
  register_module("q_norm", q_norm.emplace(head_size_, config.norm_epsilon, dtype));
  register_module("k_norm", k_norm.emplace(head_size_, config.norm_epsilon, dtype));
}

Tensor Attention::forward(const Tensor& x, const RopeTable& table, KvCache* cache) const {
  return with_hooks([&] {
    auto qkv = ranks_.column(x, {&q_proj, &k_proj, &v_proj});
    Tensor &q = qkv[0], &k = qkv[1], &v = qkv[2];
    const std::int64_t first = cache == nullptr ? 0 : cache->length;
    const RopeTable here = ranks_.positions(table, q.size(1));
    q = autograd::rope(split_heads(q, heads_, head_size_, q_norm), here, first);
    k = autograd::rope(split_heads(k, kv_heads_, head_size_, k_norm), here, first);
    v = split_heads(v, kv_heads_, head_size_);
    if (cache != nullptr) append_to_cache(*cache, k, v);
    // With a cache there are more keys than queries, and no other ranks.
    const Tensor attended = ranks_.attention(q, k, v);  // [B, H, T, D]
    const Tensor of_heads =
        attended.transpose(1, 2).reshape({q.size(0), q.size(2), heads_ * head_size_});
    return ranks_.row(of_heads, o_proj);
  });
}

FeedForward::FeedForward(const Config& config, DType dtype, const ModelRanks& ranks)
    : gate_proj(config.d_model, config.d_ff / ranks.size(), false, {}, dtype),
      up_proj(config.d_model, config.d_ff / ranks.size(), false, {}, dtype),
      down_proj(config.d_ff / ranks.size(), config.d_model, false, {}, dtype),
      ranks_(ranks) {
  register_module("gate_proj", gate_proj);
  register_module("up_proj", up_proj);
  register_module("down_proj", down_proj);
}

Tensor FeedForward::forward(const Tensor& x) const {
  return with_hooks([&] {
    auto gate_and_up = ranks_.column(x, {&gate_proj, &up_proj});
    const Tensor inside = autograd::swiglu(gate_and_up[0], gate_and_up[1]);
    gate_and_up.clear();  // without gradients, their memory is free before the last product
    return ranks_.row(inside, down_proj);
  });
}

Block::Block(const Config& config, DType dtype, const ModelRanks& ranks)
    : input_layernorm(config.d_model, config.norm_epsilon, dtype),
      self_attn(config, dtype, ranks),
      post_attention_layernorm(config.d_model, config.norm_epsilon, dtype) {
  register_module("input_layernorm", input_layernorm);
  register_module("self_attn", self_attn);
  register_module("post_attention_layernorm", post_attention_layernorm);
  if (config.experts > 0)
    register_module(config.qk_norm ? "mlp" : "block_sparse_moe",
                    block_sparse_moe.emplace(config, dtype, ranks));
  else
    register_module("mlp", mlp.emplace(config, dtype, ranks));
}

Tensor Block::forward(const Tensor& x, const RopeTable& table, KvCache* cache) const {
  return with_hooks([&] {
    const Tensor attended = self_attn.forward(input_layernorm.forward(x), table, cache);
    const auto [sum, normed] = post_attention_layernorm.add_and_norm(attended, x);
    return sum + (mlp ? mlp->forward(normed) : block_sparse_moe->forward(normed));
  });
}

}  // namespace ringside::transformer
