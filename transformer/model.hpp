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
#include <optional>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "autograd/nn/module.hpp"
#include "autograd/ops/ops.hpp"
#include "transformer/config.hpp"
#include "transformer/layers.hpp"
#include "transformer/model_part.hpp"
#include "transformer/model_ranks.hpp"
#include "transformer/recompute_groups.hpp"

namespace ringside::transformer {

class Model : public autograd::Module {
 public:
  // Validates `config` and initialises every parameter (see `initialise`). The initial values
  // depend only on config.initialise_seed and the parameter's name, so every rank makes the same
  // model. They are drawn on the CPU and then moved to `device`. dtype is fp32, fp64 or bf16.
  //
  // Tokens and targets are always CPU tensors, because they are checked there.
  //
  // A rank that holds a part of the model passes it, and the ranks that share its matrices, which
  // must outlive the model and have the part's tensor ranks. First values do not depend on the
  // part: element i of a whole parameter takes random number i.
  explicit Model(const Config& config, autograd::DType dtype = autograd::DType::fp32,
                 autograd::Device device = autograd::Device::cpu, const ModelPart& part = {},
                 const ModelRanks* ranks = nullptr);

  // tokens int32 [B, T] with T <= config.sequence -> logits [B, T, vocabulary]. Only for a model
  // that is not divided; so are hidden() with caches and head().
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

  // The pieces that hidden() is made of, for the stages of a pipeline. Each needs its layers in
  // this part; otherwise it throws Error. Where the ranks divide the sequence, T is T / t.
  //
  //     hidden(tokens) = last_norm(run_layers(embed(tokens), 0, config().layers))
  //
  // run_layers() runs the blocks first .. end - 1, counted in the whole model.
  autograd::Tensor embed(const autograd::Tensor& tokens) const;
  autograd::Tensor run_layers(autograd::Tensor x, std::int64_t first, std::int64_t end) const;
  autograd::Tensor last_norm(const autograd::Tensor& x) const;

  // Which blocks backward computes again instead of keeping their activations, by default none:
  // less memory, about a third more time, the same bits. Forward passes with caches ignore it.
  void set_recompute(const RecomputeGroups& groups) { recompute_ = groups; }

  // From now on backward also adds the gradient of the balance loss of the experts, with the weight
  // config().balance (ops/experts.hpp), for steps whose loss is the mean over so many
  // micro-batches. The numbers that loss() returns stay the same.
  void add_balance_loss(std::int64_t micro_batches);
  // How often each expert was chosen since the last call, over the blocks and tokens of this rank;
  // empty without experts.
  std::vector<std::int64_t> take_choices();

  const Config& config() const { return config_; }
  autograd::DType dtype() const { return dtype_; }
  autograd::Device device() const { return rope_table_.cos.device(); }
  const ModelPart& part() const { return part_; }

 private:
  // Everything but the head. LlamaForCausalLM names it "model".
  struct Trunk : autograd::Module {
    struct Blocks : autograd::Module {
      using Module::register_module;
      using Module::with_hooks;
      std::vector<std::unique_ptr<Block>> blocks;
    };

    using Module::register_module;  // for Model, which registers what its part holds
    using Module::with_hooks;
    std::optional<autograd::Embedding> embed_tokens;
    Blocks layers;
    std::optional<autograd::RMSNorm> norm;
  };

  void make_parameters();
  void initialise() const;
  // Runs the blocks of this part from `first` to before `end`. `caches` has one for each, or is
  // nullptr.
  autograd::Tensor run_groups(autograd::Tensor x, std::size_t first, std::size_t end,
                              std::int64_t size, std::int64_t inner) const;
  autograd::Tensor run_blocks(autograd::Tensor x, std::size_t first, std::size_t end,
                              std::vector<KvCache>* caches) const;
  autograd::Tensor embed_after(const autograd::Tensor& tokens, std::int64_t cached) const;

  Config config_;
  autograd::DType dtype_;
  ModelPart part_;
  const ModelRanks& ranks_;
  autograd::VocabularyRange vocabulary_;  // the rows of the embedding and the head in this part
  RecomputeGroups recompute_;
  Trunk model_;
  std::optional<autograd::Linear> lm_head_;
  autograd::RopeTable rope_table_;  // computed; neither trained nor stored
};

}  // namespace ringside::transformer
