// MixtureOfExperts: E feed-forward parts in the place of one, of which a router chooses K for each
// token.
//
//     x ─┬─ gate ── the K largest of E logits ── softmax over them ────── weights ─┐
//        └─ rows of the chosen experts ── w2(silu(w1(r)) * w3(r)) ── weighted sum ─┴─ y
//
// Jiang et al., "Mixtral of experts" (2024), section 2.1. Members have the names of Hugging Face's
// MixtralForCausalLM: experts.0.w1 is what FeedForward and Qwen3-MoE call gate_proj, w3 up_proj, w2
// down_proj. Qwen3-MoE computes the same, if its norm_topk_prob is true.
#pragma once

#include <memory>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "autograd/nn/module.hpp"
#include "transformer/config.hpp"
#include "transformer/model_ranks.hpp"

namespace ringside::transformer {

class MixtureOfExperts : public autograd::Module {
 public:
  // Makes the router, and those experts that are on this rank of `ranks`, which must outlive
  // this object.
  MixtureOfExperts(const Config& config, autograd::DType dtype, const ModelRanks& ranks);

  autograd::Tensor forward(const autograd::Tensor& x) const;  // [B, T, d_model] -> the same shape

  // What the loss of a micro-batch counts for in the loss of a step: 1 / their number; 0, the
  // default, for no balance loss. Its gradient does not pass through the loss, which is so scaled.
  void set_loss_share(double share) { loss_share_ = share; }

  // How often forward has chosen each expert since the last call, on this rank's tokens.
  std::vector<std::int64_t> take_choices();

  struct Expert : autograd::Module {
    Expert(const Config& config, autograd::DType dtype, int tensor_ranks);
    autograd::Linear w1, w3, w2;
  };

  autograd::Linear gate;

 private:
  struct Experts : autograd::Module {
    using Module::register_module;
    std::vector<std::unique_ptr<Expert>> here;
  };

  // rows [M, d_model], those of each expert on this rank one after the other -> the same shape.
  autograd::Tensor run_experts(const autograd::Tensor& rows,
                               std::span<const std::int64_t> counts) const;

  std::int64_t count_, per_token_;
  double balance_, loss_share_ = 0;  // balance_: of this block's loss in that of the model
  const ModelRanks& ranks_;
  Experts experts_;
  mutable std::vector<std::int64_t> choices_;
};

}  // namespace ringside::transformer
