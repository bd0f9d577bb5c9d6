// ParameterTable: every parameter of a whole model, in the order of a single process, and how ranks
// divide it. First values, loading, saving, gradient sums, norms and memory read this table, so
// that they agree and none of them depends on the mesh.
//
//     name                              shape              divided    layer
//     model.embed_tokens.weight         [V, d]             rows       embedding
//     model.layers.0.input_layernorm    [d]                no         0
//     ...self_attn.q_proj, k, v         [heads * D, d]     rows       0
//     ...self_attn.o_proj               [d, heads * D]     columns    0
//     ...self_attn.q_norm, k_norm       [D]                no         0   (Qwen3)
//     ...mlp.gate_proj, up_proj         [d_ff, d]          rows       0
//     ...mlp.down_proj                  [d, d_ff]          columns    0
//       or block_sparse_moe.gate        [E, d]             no         0
//       and for each of E experts
//          ...experts.0.w1, w3          [d_ff, d]          rows       0
//          ...experts.0.w2              [d, d_ff]          columns    0
//       (Qwen3-MoE: mlp.gate, mlp.experts.0.gate_proj, up_proj, down_proj)
//     model.norm.weight                 [d]                no         head
//     lm_head.weight                    [V, d]             rows       head
//
// With a tied head there is no lm_head.weight in the table. A rank that holds the head but not the
// embedding has a copy of the embedding's rows under that name; entry() gives it the embedding's
// entry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor/region.hpp"
#include "transformer/config.hpp"
#include "transformer/model_part.hpp"

namespace ringside::transformer {

inline constexpr const char* embedding_name = "model.embed_tokens.weight";
inline constexpr const char* head_name = "lm_head.weight";

struct ParameterEntry {
  enum Place : std::int64_t { in_embedding = -1, in_head = -2 };

  std::string name;
  autograd::Shape shape;       // of the whole tensor
  std::optional<int> divided;  // the dimension that tensor ranks divide; none: all hold all of it
  std::int64_t units = 1;      // that dimension consists of so many heads or rows, which stay whole
  std::int64_t layer = 0;      // the block, or a Place
  double deviation = 0;        // of the first values; 0: they are ones
  bool tied = false;           // the head uses this matrix too
  bool of_heads = false;       // a norm of heads: each tensor rank has the gradient of its own
  // Of a matrix of an expert: which of how many it belongs to. Expert parallel ranks hold the
  // matrices of some experts.
  std::int64_t expert = 0, experts = 0;

  bool is_norm() const { return shape.size() == 1; }
  // Whether weight decay applies: to the matrices of the blocks and to an untied head. Norm weights
  // and token embeddings have no reason to shrink towards zero.
  bool is_decayed() const { return !is_norm() && layer != in_embedding; }

  bool is_expert() const { return experts > 0; }
  // Whether the tensor ranks hold the same key or value heads, each with the gradient of its own
  // query heads.
  bool shares_heads(int tensor_ranks) const { return divided && copies(tensor_ranks) > 1; }

  // How many neighbouring tensor ranks hold the same elements: all of them for a norm, several for
  // a key or value head if there are more ranks than such heads, otherwise 1.
  int copies(int tensor_ranks) const;

  // The elements that a tensor rank holds: floor + remainder, the first ranks one unit more.
  autograd::Region region(int tensor_rank, int tensor_ranks) const;
};

class ParameterTable {
 public:
  explicit ParameterTable(const Config& config);

  const std::vector<ParameterEntry>& entries() const& { return entries_; }
  const std::vector<ParameterEntry>& entries() && = delete;  // they belong to the table

  // The entry of a parameter of a model, whole or in part. Throws Error if there is none.
  const ParameterEntry& entry(std::string_view name) const;

 private:
  std::vector<ParameterEntry> entries_;
};

// The name under which a part holds this parameter, or nothing. It is the entry's name, or
// lm_head.weight for a copy of a tied embedding.
std::optional<std::string> name_in(const ModelPart& part, const ParameterEntry& entry);

// Whether this part's elements are the ones that are counted in a norm and saved. Exactly one rank
// of those that hold an element says yes: the first of its tensor ranks, and for a tied matrix the
// one with the embedding.
bool is_counted(const ModelPart& part, const ParameterEntry& entry);

}  // namespace ringside::transformer
