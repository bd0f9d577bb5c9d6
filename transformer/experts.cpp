#include "transformer/experts.hpp"

#include <string>
#include <utility>

#include "autograd/ops/experts.hpp"
#include "autograd/ops/ops.hpp"

namespace ringside::transformer {

using autograd::DType;
using autograd::Tensor;

MixtureOfExperts::Expert::Expert(const Config& config, DType dtype, int tensor_ranks)
    : w1(config.d_model, config.d_ff / tensor_ranks, false, {}, dtype),
      w3(config.d_model, config.d_ff / tensor_ranks, false, {}, dtype),
      w2(config.d_ff / tensor_ranks, config.d_model, false, {}, dtype) {
  register_module(config.qk_norm ? "gate_proj" : "w1", w1);
  register_module(config.qk_norm ? "up_proj" : "w3", w3);
  register_module(config.qk_norm ? "down_proj" : "w2", w2);
}

MixtureOfExperts::MixtureOfExperts(const Config& config, DType dtype, const ModelRanks& ranks)
    : gate(config.d_model, config.experts, false, {}, dtype),
      count_(config.experts),
      per_token_(config.experts_per_token),
      balance_(config.balance / static_cast<double>(config.layers)),
      ranks_(ranks),
      choices_(static_cast<std::size_t>(config.experts)) {
  register_module("gate", gate);
  register_module("experts", experts_);
  const std::int64_t each = count_ / ranks.expert_ranks();
  for (std::int64_t i = 0; i < each; ++i) {
    Expert& expert =
        *experts_.here.emplace_back(std::make_unique<Expert>(config, dtype, ranks.size()));
    experts_.register_module(std::to_string(ranks.expert_rank() * each + i), expert);
  }
}

Tensor MixtureOfExperts::run_experts(const Tensor& rows,
                                     std::span<const std::int64_t> counts) const {
  const auto matrices = [&](autograd::Linear Expert::*layer) {
    std::vector<Tensor> weights;
    for (const auto& expert : experts_.here) weights.push_back(((*expert).*layer).weight);
    return weights;
  };
  const Tensor inside =
      autograd::swiglu(autograd::grouped_linear(rows, matrices(&Expert::w1), counts),
                       autograd::grouped_linear(rows, matrices(&Expert::w3), counts));
  return autograd::grouped_linear(inside, matrices(&Expert::w2), counts);
}

Tensor MixtureOfExperts::forward(const Tensor& input) const {
  return with_hooks([&] {
    const std::int64_t sequences = input.size(0);
    const Tensor x = input.reshape({-1, input.size(2)}), logits = gate.forward(x);
    const Tensor chosen = autograd::choose_experts(logits, per_token_);
    autograd::LoadBalance balance;
    if (balance_ * loss_share_ != 0 && autograd::grad_enabled()) {
      balance.weight = balance_ * loss_share_;
      balance.counts = autograd::choices_of_sequences(chosen, sequences, count_);
      ranks_.add_over_sequences(balance.counts);
    }
    const Tensor weights = autograd::routing_weights(logits, chosen, balance);
    const autograd::ExpertOrder order = autograd::sort_by_expert(chosen, count_);
    for (std::size_t i = 0; i < choices_.size(); ++i) choices_[i] += order.counts[i];
    const Tensor outputs =
        ranks_.experts(autograd::embedding(order.tokens, x), order.counts,
                       [&](const Tensor& rows, std::span<const std::int64_t> counts) {
                         return run_experts(rows, counts);
                       });
    return autograd::combine_experts(outputs, order.places, weights).reshape(input.shape());
  });
}

std::vector<std::int64_t> MixtureOfExperts::take_choices() {
  return std::exchange(choices_, std::vector<std::int64_t>(choices_.size()));
}

}  // namespace ringside::transformer
