// Model: the sizes of a model to be accounted for. Unlike transformer::Config it may be of a kind
// that Ringside does not train, because published plans are about such models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh_shape.hpp"
#include "transformer/config.hpp"

namespace ringside::planning {

// A mixture of experts in the place of the feed-forward part, after the first blocks.
struct Experts {
  std::int64_t routed = 0, shared = 0, per_token = 0;
  std::int64_t d_ff = 0;          // inside one expert
  std::int64_t dense_blocks = 0;  // the first blocks have an ordinary feed-forward part
  std::int64_t ranks = 1;         // that divide the routed ones (on_mesh)

  double here() const { return static_cast<double>(routed) / static_cast<double>(ranks); }
};

// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): queries, and keys with values, pass
// through vectors of low rank.
struct LatentAttention {
  std::int64_t q_rank = 0, kv_rank = 0;
  std::int64_t nope = 0, rope = 0, value = 0;  // widths of a head: without and with positions
};

struct Model {
  enum class Kind {
    llama,         // RMSNorm, rotary positions, SwiGLU or experts, no biases; fused attention
    gpt,           // LayerNorm, learned positions, GELU, biases, dropout
    feed_forward,  // blocks of two matrices and nothing else: the model of the course's exercise
    deepseek,      // latent attention and experts: parameters and state only
    parameters     // a number of parameters, nothing more: state only
  };

  std::string name, source;
  Kind kind = Kind::llama;
  std::int64_t vocabulary = 0, d_model = 0, layers = 0, heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t d_ff = 0;
  std::int64_t parameters = 0;  // of Kind::parameters
  std::int64_t sequence = 0;    // the longest sequence, in tokens; the default of a plan
  bool tied_head = false;
  bool qk_norm = false;  // of Kind::llama: an RMSNorm of each head of q and k, as in Qwen3
  // Of Kind::llama: biases of q, k, v and the output; of gate, up and down.
  bool attention_bias = false, mlp_bias = false;
  bool fused_attention = true;  // Kind::gpt without attn_implementation: false
  std::optional<Experts> experts;
  std::optional<LatentAttention> latent;
  std::optional<transformer::Config> own;  // of a size of transformer/

  std::int64_t q_width() const { return heads * head_size; }
  // Whether activations, FLOPs and communication can be accounted for, or the state alone.
  bool has_blocks() const { return kind != Kind::deepseek && kind != Kind::parameters; }
  // Whether attention writes its scores to memory and keeps them for backward.
  bool keeps_scores() const { return kind == Kind::gpt && !fused_attention; }
  std::int64_t kv_width() const { return kv_heads * head_size; }
  // Feed-forward parts that compute a token: those that the router chooses, or one.
  std::int64_t per_token() const { return experts ? experts->per_token : 1; }
};

// A model of transformer/.
Model model_from(const transformer::Config& config, const std::string& name);

// The model with its experts divided among the ep ranks of the mesh.
Model on_mesh(Model model, const parallel::MeshShape& mesh);

// `name` is a size of transformer/ ("lab"), a model of data/models.json ("xxl", "llama3-405b"), or
// a path: a config.json of Hugging Face, or a folder that has one. Throws Error that says what is
// known, or which key of the file is wrong.
Model find_model(const std::string& name);

// The names of data/models.json, in the order of the file.
std::vector<std::string> model_names();

}  // namespace ringside::planning
