#include "transformer/parameter_table.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace ringside::transformer {

using autograd::Region;

namespace {

// Glorot and Bengio (2010), equation 12, for a matrix [out, in].
double glorot(std::int64_t out, std::int64_t in) {
  return std::sqrt(2.0 / static_cast<double>(out + in));
}

// The part of rank `r` when `count` things are divided among `ranks`: the first ranks get one more.
std::int64_t begin_of(std::int64_t count, std::int64_t ranks, std::int64_t r) {
  return count / ranks * r + std::min(r, count % ranks);
}

}  // namespace

int ParameterEntry::copies(int tensor_ranks) const {
  if (!divided) return tensor_ranks;
  return units >= tensor_ranks ? 1 : tensor_ranks / static_cast<int>(units);
}

Region ParameterEntry::region(int tensor_rank, int tensor_ranks) const {
  if (!divided) return Region::all(shape);
  const int same = copies(tensor_ranks), place = tensor_rank / same, places = tensor_ranks / same;
  const std::int64_t size = shape[static_cast<std::size_t>(*divided)] / units;  // of a unit
  const std::int64_t begin = begin_of(units, places, place),
                     end = begin_of(units, places, place + 1);
  return Region::range(shape, *divided, begin * size, (end - begin) * size);
}

ParameterTable::ParameterTable(const Config& config) {
  const std::int64_t d = config.d_model, q = config.heads * config.head_size(),
                     kv = config.kv_heads * config.head_size(), f = config.d_ff;
  // The sum of the 2 * layers branches keeps its size: Radford et al., "Language models are
  // unsupervised multitask learners" (2019), section 2.3.
  const double branch = std::sqrt(2.0 * static_cast<double>(config.layers));
  constexpr double vocabulary = 0.02;  // as in Llama and GPT-2: first predictions almost uniform
  constexpr int rows = 0, columns = 1;

  const auto norm = [&](std::string name, std::int64_t layer) {
    entries_.push_back({.name = std::move(name), .shape = {d}, .divided = {}, .layer = layer});
  };
  const auto matrix = [&](std::string name, std::int64_t layer, std::int64_t out, std::int64_t in,
                          int divided, std::int64_t units, double deviation) {
    entries_.push_back({std::move(name), {out, in}, divided, units, layer, deviation});
  };

  const char* const moe = config.qk_norm ? "mlp." : "block_sparse_moe.";
  matrix(embedding_name, ParameterEntry::in_embedding, config.vocabulary, d, rows,
         config.vocabulary, vocabulary);
  entries_.back().tied = config.tied_head;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string block = fmt::format("model.layers.{}.", i);
    norm(block + "input_layernorm.weight", i);
    matrix(block + "self_attn.q_proj.weight", i, q, d, rows, config.heads, glorot(q, d));
    matrix(block + "self_attn.k_proj.weight", i, kv, d, rows, config.kv_heads, glorot(kv, d));
    matrix(block + "self_attn.v_proj.weight", i, kv, d, rows, config.kv_heads, glorot(kv, d));
    matrix(block + "self_attn.o_proj.weight", i, d, q, columns, config.heads,
           glorot(d, q) / branch);
    for (const char* of : {"q", "k"})
      if (config.qk_norm)
        entries_.push_back({.name = fmt::format("{}self_attn.{}_norm.weight", block, of),
                            .shape = {config.head_size()},
                            .divided = {},
                            .layer = i,
                            .of_heads = true});
    norm(block + "post_attention_layernorm.weight", i);
    const auto feed_forward = [&](const std::string& part, const char* gate, const char* up,
                                  const char* down) {
      matrix(part + gate, i, f, d, rows, f, glorot(f, d));
      matrix(part + up, i, f, d, rows, f, glorot(f, d));
      matrix(part + down, i, d, f, columns, f, glorot(d, f) / branch);
    };
    if (config.experts == 0)
      feed_forward(block + "mlp.", "gate_proj.weight", "up_proj.weight", "down_proj.weight");
    else
      entries_.push_back({.name = block + moe + "gate.weight",
                          .shape = {config.experts, d},
                          .divided = {},
                          .layer = i,
                          .deviation = glorot(config.experts, d)});
    for (std::int64_t e = 0; e < config.experts; ++e) {
      const std::size_t first = entries_.size();
      const std::string part = fmt::format("{}{}experts.{}.", block, moe, e);
      if (config.qk_norm)
        feed_forward(part, "gate_proj.weight", "up_proj.weight", "down_proj.weight");
      else
        feed_forward(part, "w1.weight", "w3.weight", "w2.weight");
      for (std::size_t j = first; j < entries_.size(); ++j)
        entries_[j].expert = e, entries_[j].experts = config.experts;
    }
  }
  norm("model.norm.weight", ParameterEntry::in_head);
  if (!config.tied_head)
    matrix(head_name, ParameterEntry::in_head, config.vocabulary, d, rows, config.vocabulary,
           vocabulary);
}

const ParameterEntry& ParameterTable::entry(std::string_view name) const {
  if (name == head_name && entries_.front().tied) return entries_.front();
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const ParameterEntry& each) { return each.name == name; });
  require(found != entries_.end(), "a model of this configuration has no parameter '{}'", name);
  return *found;
}

std::optional<std::string> name_in(const ModelPart& part, const ParameterEntry& entry) {
  if (entry.is_expert() && entry.expert * part.expert_ranks / entry.experts != part.expert_rank)
    return std::nullopt;
  const bool held = entry.layer == ParameterEntry::in_embedding ? part.embedding
                    : entry.layer == ParameterEntry::in_head    ? part.head
                                                                : part.holds_layer(entry.layer);
  if (held) return entry.name;
  if (entry.tied && part.head) return head_name;
  return std::nullopt;
}

bool is_counted(const ModelPart& part, const ParameterEntry& entry) {
  return name_in(part, entry) == entry.name && (entry.is_expert() || part.expert_rank == 0) &&
         part.tensor_rank % entry.copies(part.tensor_ranks) == 0;
}

}  // namespace ringside::transformer
