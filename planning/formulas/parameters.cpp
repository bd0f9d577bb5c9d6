#include "planning/formulas/parameters.hpp"

namespace ringside::planning {
namespace {

// Sources of the shapes.
constexpr const char* llama = "Touvron et al. 2023, section 2.2";
constexpr const char* gpt = "Narayanan et al. 2021, section 5.1";
constexpr const char* course = "Stanford CS336, assignment 2";
constexpr const char* deepseek = "DeepSeek-V2 2024, section 2.1; DeepSeek-V3 2024, section 4.2";

const char* source_of(const Model& model) {
  return model.kind == Model::Kind::gpt            ? gpt
         : model.kind == Model::Kind::feed_forward ? course
                                                   : llama;
}

// Queries of rank q, then up to heads of (n + r); keys and values of rank c with r numbers of
// position, then up to heads of (n + v); the output; and the norms of both vectors of low rank.
Term latent_attention(const Model& model) {
  const auto& latent = *model.latent;
  const Quantity d("d", model.d_model), a("a", model.heads), q("q", latent.q_rank),
      c("c", latent.kv_rank), n("n", latent.nope), r("r", latent.rope), v("v", latent.value);
  return {"P_attention", "latent attention of a block",
          d * q + q + q * a * (n + r) + d * (c + r) + c + c * a * (n + v) + a * v * d, Unit::number,
          deepseek};
}

// Routed and shared experts of three matrices, the router, and the bias that balances its load.
Term expert_block(const Model& model) {
  const auto& experts = *model.experts;
  const Quantity d("d", model.d_model), f("f_e", experts.d_ff), routed("E", experts.routed),
      shared("E_s", experts.shared);
  return {"P_experts", "experts of a block, with the router and its bias",
          3 * d * f * (routed + shared) + d * routed + routed, Unit::number, deepseek};
}

std::vector<Term> with_experts(const Model& model) {
  const Quantity d("d", model.d_model), f("f", model.d_ff), blocks("L", model.layers),
      vocabulary("V", model.vocabulary), dense("L_dense", model.experts->dense_blocks);
  const Term attention = latent_attention(model), experts = expert_block(model);
  const Term feed_forward{"P_dense", "feed-forward part of a block without experts", 3 * d * f,
                          Unit::number, deepseek};
  const Term total{"P", "all parameters",
                   2 * vocabulary * d + d + blocks * (attention + 2 * d) + dense * feed_forward +
                       (blocks - dense) * experts,
                   Unit::number, deepseek};
  return {attention, feed_forward, experts, total};
}

// A block whose matrices are those of attention, the router, and `experts` experts.
Quantity with_experts_in_block(const Model& model, const Quantity& experts) {
  const Quantity d("d", model.d_model), f("f", model.d_ff), q("q", model.q_width()),
      kv("kv", model.kv_width()), routed("E", model.experts->routed);
  return 2 * d * q + 2 * d * kv + d * routed + 3 * d * f * experts;
}

constexpr const char* mixtral = "Jiang et al. 2024 (Mixtral), section 2.1";

}  // namespace

Term block_matrices(const Model& model) {
  const Quantity d("d", model.d_model), f("f", model.d_ff);
  if (model.kind == Model::Kind::feed_forward)
    return {"P_matrices", "matrices of a block: up, down", 2 * d * f, Unit::number, course};
  if (model.kind == Model::Kind::gpt)
    return {"P_matrices", "matrices of a block: q, k, v, output; up, down", 4 * d * d + 2 * d * f,
            Unit::number, gpt};
  if (model.experts)
    return {"P_matrices",
            "matrices of a block: q and output, k and v; router; gate, up, down of E experts",
            with_experts_in_block(model, {"E", model.experts->routed}), Unit::number, mixtral};
  const Quantity q("q", model.q_width()), kv("kv", model.kv_width());
  return {"P_matrices", "matrices of a block: q and output, k and v; gate, up, down",
          2 * d * q + 2 * d * kv + 3 * d * f, Unit::number, llama};
}

Term active_matrices(const Model& model) {
  if (model.kind != Model::Kind::llama || !model.experts) return block_matrices(model);
  return {"P_active", "matrices of a block that compute a token: K of E experts",
          with_experts_in_block(model, {"K", model.experts->per_token}), Unit::number, mixtral};
}

Term active_parameters(const Model& model) {
  const Experts& experts = *model.experts;
  const Quantity d("d", model.d_model), f("f_e", experts.d_ff), routed("E", experts.routed),
      chosen("K", experts.per_token), blocks("L_experts", model.layers - experts.dense_blocks);
  return {
      "P_active", "parameters that compute a token: without E - K experts of a block",
      Quantity("P", parameter_count(model).back().value()) - blocks * 3 * d * f * (routed - chosen),
      Unit::number, mixtral};
}

Term block_vectors(const Model& model) {
  const Quantity d("d", model.d_model), f("f", model.d_ff);
  if (model.kind == Model::Kind::feed_forward)
    return {"P_vectors", "norms and biases of a block: none", 0, Unit::number, course};
  if (model.kind == Model::Kind::gpt)
    return {"P_vectors", "two LayerNorms, and the biases of the matrices", 9 * d + f, Unit::number,
            gpt};
  const Quantity q("q", model.q_width()), kv("kv", model.kv_width());
  Quantity vectors = 2 * d;
  if (model.attention_bias) vectors = vectors + q + 2 * kv + d;
  if (model.mlp_bias) vectors = vectors + 2 * f + d;
  if (model.qk_norm) vectors = vectors + 2 * Quantity("d_head", model.head_size);
  return {"P_vectors",
          model.attention_bias || model.mlp_bias ? "two RMSNorms, and biases"
          : model.qk_norm                        ? "two RMSNorms, and those of heads of q and k"
                                                 : "two RMSNorms",
          vectors, Unit::number, llama};
}

Term embedding(const Model& model) {
  const Quantity d("d", model.d_model), vocabulary("V", model.vocabulary);
  if (model.kind == Model::Kind::gpt)
    return {"P_embedding", "embeddings of tokens and of positions",
            (vocabulary + Quantity("s", model.sequence)) * d, Unit::number, gpt};
  return {"P_embedding", "embedding of tokens", vocabulary * d, Unit::number, source_of(model)};
}

Term last_norm(const Model& model) {
  const Quantity d("d", model.d_model);
  if (model.kind == Model::Kind::feed_forward)
    return {"P_norm", "last norm: none", 0, Unit::number, course};
  return {"P_norm", "last norm", (model.kind == Model::Kind::gpt ? 2 : 1) * d, Unit::number,
          source_of(model)};
}

Term head(const Model& model) {
  const Quantity d("d", model.d_model), vocabulary("V", model.vocabulary);
  if (model.tied_head || model.vocabulary == 0)
    return {"P_head", "head: no matrix of its own", 0, Unit::number, source_of(model)};
  return {"P_head", "head", vocabulary * d, Unit::number, source_of(model)};
}

Term whole_block(const Model& model, const Quantity& t) {
  Quantity on_rank = block_matrices(model) / t + block_vectors(model);
  if (model.experts) {
    const Quantity d("d", model.d_model), routed("E", model.experts->routed);
    on_rank = (with_experts_in_block(model, {"E / n", model.experts->here()}) - d * routed) / t +
              d * routed + block_vectors(model);
  }
  // Each rank has at least one head of keys and values: more ranks than heads share copies.
  if (model.kv_heads > 0 && t.value() > static_cast<double>(model.kv_heads))
    on_rank =
        on_rank + 2 * Quantity("d", model.d_model) *
                      (Quantity("d_head", model.head_size) - Quantity("kv", model.kv_width()) / t);
  return {"P_block",
          model.experts ? "parameters of a block on one rank, with E / n experts and the router"
                        : "parameters of a block on one rank",
          on_rank, Unit::number, "Shoeybi et al. 2019 (Megatron-LM), section 3"};
}

Quantity down_projection(const Model& model, const Quantity& t) {
  const Quantity h("h", model.d_model), f("f", model.d_ff);
  return model.experts ? h * f * Quantity("E / n", model.experts->here()) / t : h * f / t;
}

Quantity stage_parameters(const Model& model, const Quantity& t, const PipelinePart& part) {
  Quantity sum = Quantity("L_stage", part.blocks) * whole_block(model, t);
  if (model.vocabulary == 0) return sum;
  if (part.has_embedding) sum = sum + embedding(model) / t;
  if (!part.has_head) return sum;
  sum = sum + last_norm(model);
  if (!model.tied_head) return sum + head(model) / t;
  // A tied head on another stage than the embedding is a copy.
  return part.has_embedding ? sum : sum + embedding(model) / t;
}

std::vector<Term> parameter_count(const Model& model) {
  if (model.kind == Model::Kind::parameters)
    return {{"P", "all parameters", Quantity("P", model.parameters), Unit::number, model.source}};
  if (model.kind == Model::Kind::deepseek) return with_experts(model);
  const Quantity blocks("L", model.layers);
  const Term matrices = block_matrices(model), vectors = block_vectors(model);
  if (model.kind == Model::Kind::feed_forward)
    return {matrices, {"P", "all parameters", blocks * matrices, Unit::number, course}};
  const Term table = embedding(model), norm = last_norm(model), matrix = head(model);
  return {matrices,
          vectors,
          table,
          norm,
          matrix,
          {"P", "all parameters", table + blocks * (matrices + vectors) + norm + matrix,
           Unit::number, source_of(model)}};
}

}  // namespace ringside::planning
