// Config: the hyperparameters of a model. checkpoint/config_file.hpp reads and writes them.
//
// Reading order of transformer/, from the bottom up:
//
//     the model       config.hpp, layers.hpp, model.hpp
//     its text        data/vocabulary.hpp, data/corpus.hpp, data/corpus_file.hpp,
//                     data/batches.hpp
//     its use         inference/generation.hpp, inference/evaluation.hpp
//     on disk         checkpoint/safetensors.hpp, checkpoint/checkpoint.hpp
//
// training/ trains it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringside::transformer {

// How the frequencies of RoPE are scaled for sequences that are longer than those of the first
// training (rope_frequencies() has the formulas).
struct RopeScaling {
  enum Kind { none, linear, llama3 };
  Kind kind = none;
  double factor = 1;  // factor
  // Of llama3:
  double low_frequency = 1;       // low_freq_factor
  double high_frequency = 4;      // high_freq_factor
  std::int64_t old_sequence = 0;  // original_max_position_embeddings
};

// The sizes of a Llama model (Touvron et al., "LLaMA: open and efficient foundation language
// models", 2023, section 2.2). The comments give the key of each in Hugging Face's config.json.
struct Config {
  std::int64_t vocabulary = 256;  // vocab_size: number of token ids; a model of bytes needs 256
  std::int64_t d_model = 128;     // hidden_size: width of the residual stream
  std::int64_t layers = 4;        // num_hidden_layers: number of blocks
  std::int64_t heads = 4;         // num_attention_heads: query heads
  std::int64_t kv_heads = 4;      // num_key_value_heads: heads / kv_heads query heads share one
  std::int64_t d_ff = 344;        // intermediate_size: width inside the feed-forward part
  std::int64_t sequence = 128;    // max_position_embeddings: longest sequence, in tokens
  std::int64_t head_dim = 0;      // head_dim: numbers per head; 0: d_model / heads
  double rope_theta = 10000;      // rope_theta: base of the rotary frequencies
  RopeScaling rope_scaling = {};  // rope_scaling, or rope_parameters
  double norm_epsilon = 1e-5;     // rms_norm_eps: added under the root of RMSNorm
  bool tied_head = false;         // tie_word_embeddings: the head uses the embedding's matrix
  // Qwen3 and Qwen3-MoE (Qwen team, "Qwen3 technical report", 2025): each head of q and of k has an
  // RMSNorm before the rotation, with one weight for all heads. Checkpoints then have their names.
  bool qk_norm = false;

  // A mixture of experts in the place of every feed-forward part, as in Mixtral (Jiang et al.,
  // 2024): d_ff is the width inside each, which Qwen3-MoE calls moe_intermediate_size. 0: none.
  std::int64_t experts = 0;            // num_local_experts; num_experts of Qwen3-MoE
  std::int64_t experts_per_token = 2;  // num_experts_per_tok: how many compute each token
  double balance = 0.01;               // router_aux_loss_coef: see Model::add_balance_loss

  // Seed of the initial parameters. Not stored in checkpoints.
  std::uint64_t initialise_seed = 0;

  std::int64_t head_size() const { return head_dim > 0 ? head_dim : d_model / heads; }
};

// The names that `named_config` knows, smallest first: tiny, moe-tiny, lab, small, medium, large,
// xl.
std::vector<std::string> config_names();

// The config with this name. `small` to `xl` have the widths and depths of the GPT-2 family, with
// the vocabulary and sequence length of `lab`. Throws Error that lists the known names.
Config named_config(const std::string& name);

// Throws Error that names the first inconsistent size, such as a width that is not a multiple of
// the number of heads.
void validate(const Config& config);

// The angle by which one position turns pair i of a head: frequency i, of head_size() / 2. Without
// scaling it is rope_theta^(-2i/D).
std::vector<double> rope_frequencies(const Config& config);

// Number of trained values. A tied head counts once.
std::int64_t parameter_count(const Config& config);
// The same without the experts that a token does not use.
std::int64_t active_parameter_count(const Config& config);

}  // namespace ringside::transformer
