#include "transformer/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "autograd/bf16.hpp"
#include "autograd/engine.hpp"
#include "base/error.hpp"

namespace ringside::transformer {

using autograd::Tensor;

namespace {

constexpr std::int32_t nothing_follows = -100;  // what cross_entropy leaves out

// log softmax(logits)[token], in fp64 whatever the model computes in.
template <class T>
double log_probability(std::span<const T> logits, std::int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const T logit : logits) total += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(total);
}

// Equally long sequences as a batch: tokens and targets [sequences, T], the target of the last token is nothing.
struct Together {
  Tensor tokens, targets;
};

Together together(std::span<const Tokens> sequences) {
  Tokens tokens, targets;
  for (const Tokens& sequence : sequences) {
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
    targets.insert(targets.end(), sequence.begin() + 1, sequence.end());
    targets.push_back(nothing_follows);
  }
  const autograd::Shape shape{static_cast<std::int64_t>(sequences.size()), static_cast<std::int64_t>(sequences[0].size())};
  return {Tensor::from(tokens, shape), Tensor::from(targets, shape)};
}

// What `logits` [sequences, T, vocabulary] say of the sequences, added to `evaluation`.
void take_down(const Tensor& logits, std::span<const Tokens> sequences, bool keep_logits, Evaluation& evaluation) {
  const auto vocabulary = static_cast<std::size_t>(logits.size(2)), length = static_cast<std::size_t>(logits.size(1));
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    std::vector<double>& of_sequence = evaluation.log_probabilities.emplace_back();
    autograd::dispatch(logits.dtype(), "evaluate", [&](auto zero) {
      const std::span<const decltype(zero)> all = logits.values<decltype(zero)>();
      for (std::size_t t = 0; t + 1 < length; ++t) {
        of_sequence.push_back(log_probability(all.subspan((s * length + t) * vocabulary, vocabulary), sequences[s][t + 1]));
        evaluation.loss -= of_sequence.back() / static_cast<double>(evaluation.foretold);
      }
    });
    if (!keep_logits) continue;
    const Tensor own = logits.detach().narrow(0, static_cast<std::int64_t>(s), 1).clone();
    evaluation.logits.push_back(own.reshape({logits.size(1), logits.size(2)}));
  }
}

}  // namespace

void check_sequences(const std::vector<Tokens>& sequences, const Config& config) {
  require(!sequences.empty(), "there are no sequences");
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const auto length = static_cast<std::int64_t>(sequences[s].size());
    require(length >= 2, "sequence {} has {} token: it takes two, for the first to foretell the second", s, length);
    require(length <= config.sequence, "sequence {} has {} tokens, but the model sees at most {}: cut it", s, length, config.sequence);
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int32_t id = sequences[s][static_cast<std::size_t>(t)];
      require(id >= 0 && id < config.vocabulary, "sequence {} has the token {} at place {}, but the model's vocabulary is 0 to {}", s, id, t,
              config.vocabulary - 1);
    }
  }
}

Evaluation evaluate(const Model& model, const std::vector<Tokens>& sequences, const EvaluateOptions& options) {
  check_sequences(sequences, model.config());
  require(options.at_once >= 1, "{} sequences at once are none", options.at_once);
  std::optional<autograd::NoGrad> no_history;
  if (options.gradients)
    model.zero_grad();
  else
    no_history.emplace();

  Evaluation evaluation;
  for (const Tokens& sequence : sequences) evaluation.foretold += static_cast<std::int64_t>(sequence.size()) - 1;
  const std::span<const Tokens> all(sequences);
  for (std::size_t first = 0; first < all.size();) {
    std::size_t end = first + 1;
    while (end < all.size() && end - first < static_cast<std::size_t>(options.at_once) && all[end].size() == all[first].size()) ++end;
    const auto part = all.subspan(first, end - first);
    const auto [tokens, targets] = together(part);
    const Tensor logits = model.forward(tokens);
    take_down(autograd::wide(logits.detach()), part, options.logits, evaluation);
    if (options.gradients) {
      // The mean over all is the sum of the parts' means, each weighted with its share of the tokens.
      const auto foretold = static_cast<double>(part.size() * (part[0].size() - 1));
      const Tensor loss = autograd::cross_entropy(logits, targets, nothing_follows);
      autograd::backward(loss, Tensor::scalar(foretold / static_cast<double>(evaluation.foretold), loss.dtype()));
    }
    first = end;
  }
  return evaluation;
}

}  // namespace ringside::transformer
