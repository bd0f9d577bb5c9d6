// The shape of a transformer: seven numbers and a few conventions, and what follows from them.
//
// Reading order of this room: this file, layers.hpp, model.hpp (the network); vocabulary.hpp,
// corpus.hpp, batches.hpp (what it reads); learning_rate.hpp, parallel_form.hpp, trainer.hpp (how
// it learns); sample.hpp (what it says); safetensors.hpp, checkpoint.hpp (how it is kept);
// tokens.hpp, evaluate.hpp (how it is held against others).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringside::transformer {

// The Llama block's sizes (Touvron et al., "LLaMA: open and efficient foundation language models",
// 2023, section 2.2), under the names of this project; in brackets the key of Hugging Face's
// config.json.
struct Config {
  std::int64_t vocabulary = 256;  // tokens that exist [vocab_size]; bytes need 256
  std::int64_t d_model = 128;     // width of the residual stream [hidden_size]
  std::int64_t layers = 4;        // blocks [num_hidden_layers]
  std::int64_t heads = 4;         // query heads [num_attention_heads]
  std::int64_t kv_heads =
      4;  // key and value heads, each shared by heads / kv_heads query heads [num_key_value_heads]
  std::int64_t d_ff = 344;      // width inside the feed-forward part [intermediate_size]
  std::int64_t sequence = 128;  // tokens that the model sees at once [max_position_embeddings]
  double rope_theta = 10000;    // base of the rotary frequencies [rope_theta]
  double norm_epsilon = 1e-5;   // added under RMSNorm's root [rms_norm_eps]
  bool tied_head = false;       // the head is the embedding's matrix [tie_word_embeddings]
  std::uint64_t initialise_seed =
      0;  // of the numbers that the parameters start from; no part of a checkpoint

  std::int64_t head_size() const { return d_model / heads; }
};

// The names that `named_config` knows, smallest first: tiny, lab, small, medium, large, xl.
std::vector<std::string> config_names();

// The sizes that go by this name. `small` to `xl` have the widths and depths of GPT-2's family;
// their vocabulary and sequence are those of `lab`. Throws Error naming the known ones.
Config named_config(const std::string& name);

// Throws Error with one sentence about the first thing that makes no sense, such as a width that
// its heads do not divide.
void validate(const Config& config);

// Numbers that are trained; a tied head is counted once.
std::int64_t parameter_count(const Config& config);

}  // namespace ringside::transformer
