// Model: a Llama. It reads tokens and gives, at each position, the logits of the next token.
//
//     tokens ── embedding ── block ── block ── ... ── norm ── head ── logits
//     [B, T]    [B, T, d_model]                                       [B, T, vocabulary]
//
// Parameters have the names of Hugging Face's LlamaForCausalLM: model.embed_tokens.weight,
// model.layers.0.self_attn.q_proj.weight, ..., model.norm.weight, lm_head.weight.
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
  // Validates `config` and initialises every parameter (see `initialise`). The initial values
  // depend only on config.initialise_seed and the parameter's name, so every rank makes the same
  // model. They are drawn on the CPU and then moved to `device`. dtype is fp32, fp64 or bf16.
  //
  // Tokens and targets are always CPU tensors, because they are checked there.
  explicit Model(const Config& config, autograd::DType dtype = autograd::DType::fp32,
                 autograd::Device device = autograd::Device::cpu);

  // tokens int32 [B, T] with T <= config.sequence -> logits [B, T, vocabulary].
  autograd::Tensor forward(const autograd::Tensor& tokens) const;

  // The two halves of forward(). hidden() ends after the last norm: [B, T] -> [B, T, d_model].
  // head() turns any rows of that into logits.
  //
  // With caches (one per block), the tokens follow the cached ones. Together they are at most
  // config.sequence.
  autograd::Tensor hidden(const autograd::Tensor& tokens,
                          std::vector<KvCache>* caches = nullptr) const;
  autograd::Tensor head(const autograd::Tensor& hidden) const;

  // Empty caches for B sequences: one per block, with capacity config.sequence.
  std::vector<KvCache> empty_kv_cache(std::int64_t sequences = 1) const;

  // The mean of -log p(target) over all tokens, in nats: a scalar to call backward() on. targets
  // are int32 [B, T]; a target of -100 does not count. The logits never exist all at once: see
  // linear_cross_entropy in autograd/ops/ops.hpp.
  autograd::Tensor loss(const autograd::Tensor& tokens, const autograd::Tensor& targets) const;

  // The same from the result of hidden().
  autograd::Tensor head_loss(const autograd::Tensor& hidden, const autograd::Tensor& targets) const;

  // Whether backward recomputes each block instead of keeping its activations
  // (autograd/engine/checkpointing.hpp): less memory, about a third more time, the same bits.
  // Off by default. Forward passes with caches ignore it.
  void set_checkpoint_activations(bool on) { checkpoint_activations_ = on; }

  const Config& config() const { return config_; }
  autograd::DType dtype() const { return dtype_; }
  autograd::Device device() const { return rope_table_.cos.device(); }

 private:
  // What one forward pass hands down to the blocks.
  struct Pass {
    const autograd::RopeTable& table;
    std::vector<KvCache>* caches;  // one per block; nullptr: none
    bool checkpoint_activations;
  };

  // Everything but the head. LlamaForCausalLM names it "model".
  struct Trunk : autograd::Module {
    struct Blocks : autograd::Module {
      Blocks(const Config& config, autograd::DType dtype);
      autograd::Tensor forward(autograd::Tensor x, const Pass& pass) const;
      std::vector<std::unique_ptr<Block>> blocks;
    };
    Trunk(const Config& config, autograd::DType dtype);
    autograd::Tensor forward(const autograd::Tensor& tokens, const Pass& pass) const;

    autograd::Embedding embed_tokens;
    Blocks layers;
    autograd::RMSNorm norm;
  };

  Config config_;
  autograd::DType dtype_;
  bool checkpoint_activations_ = false;
  Trunk model_;
  autograd::Linear lm_head_;
  autograd::RopeTable rope_table_;  // computed; neither trained nor stored
};

// Fills every parameter with its initial values. Norms are ones. The others are normal with mean 0
// and this standard deviation:
//
//     embedding and head    0.02, as in Llama and GPT-2: the first predictions are almost uniform
//     matrices              sqrt(2 / (in + out)): Glorot and Bengio (2010), equation 12
//     o_proj, down_proj     the same, divided by sqrt(2 * layers): the sum of the 2 * layers
//                           branches keeps its size (Radford et al., "Language models are
//                           unsupervised multitask learners" (2019), section 2.3)
void initialise(const autograd::Module& model, const Config& config);

}  // namespace ringside::transformer
