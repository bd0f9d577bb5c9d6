// The whole network: tokens in, for every place the odds of the next token out.
//
//     tokens ── embedding ── block ── block ── ... ── norm ── head ── logits
//
// Its parameters carry the names of Hugging Face's LlamaForCausalLM: model.embed_tokens.weight,
// model.layers.0.self_attn.q_proj.weight,
// ..., model.norm.weight, lm_head.weight.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "autograd/nn/module.hpp"
#include "autograd/ops/ops.hpp"
#include "transformer/config.hpp"
#include "transformer/layers.hpp"

namespace ringside::transformer {

class Model : public autograd::Module {
 public:
  // Validates `config` and gives every parameter its first value, which depends on
  // config.initialise_seed and the parameter's name alone: every rank, whatever their number, makes
  // the same model. See `initialise`. dtype is fp32, fp64 or bf16. The numbers are drawn on the CPU
  // and then moved to `device`. Tokens and targets are given on the CPU always: there they are
  // checked.
  explicit Model(const Config& config, autograd::DType dtype = autograd::DType::fp32,
                 autograd::Device device = autograd::Device::cpu);

  // tokens int32 [B, T], T at most config.sequence -> logits [B, T, vocabulary].
  autograd::Tensor forward(const autograd::Tensor& tokens) const;

  // The same up to and with the last norm -> [B, T, d_model]; head() makes logits of any of its
  // rows. With a past, the tokens are those that follow the ones in it, together at most
  // config.sequence; see Past.
  autograd::Tensor hidden(const autograd::Tensor& tokens, std::vector<Past>* past = nullptr) const;
  autograd::Tensor head(const autograd::Tensor& hidden) const;

  // A past in which nothing is yet, of B sequences: one for each block, with room for
  // config.sequence tokens.
  std::vector<Past> empty_past(std::int64_t sequences = 1) const;

  // Mean over all tokens of -log p(target), in nats: a scalar to call backward() on. targets int32
  // [B, T], of which -100 do not count. The logits are never there all at once: see
  // linear_cross_entropy in autograd/ops/ops.hpp.
  autograd::Tensor loss(const autograd::Tensor& tokens, const autograd::Tensor& targets) const;
  autograd::Tensor head_loss(const autograd::Tensor& hidden,
                             const autograd::Tensor& targets) const;  // from what hidden() gave

  // Whether each block is checkpointed (autograd/engine/checkpointing.hpp): less memory for a third
  // more time, and the same bits. Off at first.
  void set_checkpoint_activations(bool on) { checkpoint_activations_ = on; }

  const Config& config() const { return config_; }
  autograd::DType dtype() const { return dtype_; }
  autograd::Device device() const { return rope_table_.cos.device(); }

 private:
  // What Llama's names call "model": everything but the head.
  struct Trunk : autograd::Module {
    Trunk(const Config& config, autograd::DType dtype);
    struct Blocks : autograd::Module {
      Blocks(const Config& config, autograd::DType dtype);
      std::vector<std::unique_ptr<Block>> blocks;
    };
    autograd::Embedding embed_tokens;
    Blocks layers;
    autograd::RMSNorm norm;
  };

  Config config_;
  autograd::DType dtype_;
  bool checkpoint_activations_ = false;
  Trunk model_;
  autograd::Linear lm_head_;
  autograd::RopeTable rope_table_;  // computed, not trained and not stored
};

// First values, drawn from normal distributions around 0 (norms: all ones):
//     embedding and head    0.02, as Llama and GPT-2: the first guesses are near uniform
//     matrices              sqrt(2 / (in + out)): Glorot and Bengio (2010), equation 12
//     o_proj, down_proj     that, divided by sqrt(2 * layers): what the 2 * layers branches add to the stream stays of one size
//                           (Radford et al., "Language models are unsupervised multitask learners" (2019), section 2.3)
void initialise(const autograd::Module& model, const Config& config);

}  // namespace ringside::transformer
