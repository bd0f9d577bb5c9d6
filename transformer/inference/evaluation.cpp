#include "transformer/inference/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/copy.hpp"
#include "base/error.hpp"

namespace ringside::transformer {

using autograd::Tensor;

namespace {

constexpr std::int32_t no_target = -100;  // head_loss() does not count it

// log softmax(logits)[token], in fp64 for every dtype of the model.
template <class T>
double log_probability(std::span<const T> logits, std::int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const T logit : logits) total += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest - std::log(total);
}

// Sequences of equal length as a batch: tokens and targets [sequences, T]. The last token of each
// sequence has no target.
struct SequenceBatch {
  Tensor tokens, targets;
};

SequenceBatch batch_of(std::span<const Tokens> sequences) {
  Tokens tokens, targets;
  for (const Tokens& sequence : sequences) {
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
    targets.insert(targets.end(), sequence.begin() + 1, sequence.end());
    targets.push_back(no_target);
  }
  const autograd::Shape shape{static_cast<std::int64_t>(sequences.size()),
                              static_cast<std::int64_t>(sequences[0].size())};
  return {Tensor::from(tokens, shape), Tensor::from(targets, shape)};
}

// Runs the head on `hidden` [sequences, T, d_model] and adds the results to `evaluation`. It makes
// a few rows of logits at a time: all of them may be larger than the rest of the model.
void add_predictions(const Model& model, const Tensor& hidden, std::span<const Tokens> sequences,
                     bool keep_logits, Evaluation& evaluation) {
  const autograd::NoGrad no_grad;
  const std::int64_t length = hidden.size(1), vocabulary = model.config().vocabulary,
                     rows = autograd::cross_entropy_rows(length, vocabulary);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    std::vector<double>& of_sequence = evaluation.log_probabilities.emplace_back();
    if (keep_logits)
      evaluation.logits.push_back(
          Tensor::empty({length, vocabulary}, autograd::compute_dtype(model.dtype())));
    for (std::int64_t first = 0; first < length; first += rows) {
      const std::int64_t count = std::min(rows, length - first);
      const Tensor part = hidden.narrow(0, static_cast<std::int64_t>(s), 1).narrow(1, first, count);
      const Tensor logits = autograd::to_compute_dtype(model.head(part))
                                .reshape({count, vocabulary})
                                .to(autograd::Device::cpu);
      if (keep_logits) evaluation.logits.back().narrow(0, first, count).copy_(logits);
      autograd::dispatch(logits.dtype(), "evaluate", [&]<class T>(T) {
        const std::span<const T> all = logits.values<T>();
        for (std::int64_t t = first; t < std::min(first + count, length - 1); ++t) {
          const auto row = all.subspan(static_cast<std::size_t>((t - first) * vocabulary),
                                       static_cast<std::size_t>(vocabulary));
          of_sequence.push_back(
              log_probability(row, sequences[s][static_cast<std::size_t>(t) + 1]));
          evaluation.loss -= of_sequence.back() / static_cast<double>(evaluation.predicted_tokens);
        }
      });
    }
  }
}

}  // namespace

void check_sequences(const std::vector<Tokens>& sequences, const Config& config) {
  require(!sequences.empty(), "there are no sequences");
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const auto length = static_cast<std::int64_t>(sequences[s].size());
    require(
        length >= 2,
        "sequence {} has {} token: it needs at least two, so that the first predicts the second", s,
        length);
    require(length <= config.sequence,
            "sequence {} has {} tokens, but the model sees at most {}: cut it", s, length,
            config.sequence);
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int32_t id = sequences[s][static_cast<std::size_t>(t)];
      require(id >= 0 && id < config.vocabulary,
              "sequence {} has the token {} at position {}, but the model's vocabulary is 0 to {}",
              s, id, t, config.vocabulary - 1);
    }
  }
}

Evaluation evaluate(const Model& model, const std::vector<Tokens>& sequences,
                    const EvaluateOptions& options) {
  check_sequences(sequences, model.config());
  require(options.at_once >= 1, "at_once is {} sequences, but it must be at least 1",
          options.at_once);
  std::optional<autograd::NoGrad> no_grad;
  if (options.gradients)
    model.zero_grad();
  else
    no_grad.emplace();

  Evaluation evaluation;
  for (const Tokens& sequence : sequences)
    evaluation.predicted_tokens += static_cast<std::int64_t>(sequence.size()) - 1;
  const std::span<const Tokens> all(sequences);
  for (std::size_t first = 0; first < all.size();) {
    std::size_t end = first + 1;
    while (end < all.size() && end - first < static_cast<std::size_t>(options.at_once) &&
           all[end].size() == all[first].size())
      ++end;
    const auto part = all.subspan(first, end - first);
    const auto [tokens, targets] = batch_of(part);
    const Tensor hidden = model.hidden(tokens);
    add_predictions(model, hidden.detach(), part, options.logits, evaluation);
    if (options.gradients) {
      // The mean over all tokens is the sum of the means of the parts, each weighted by its share
      // of the tokens.
      const auto predicted = static_cast<double>(part.size() * (part[0].size() - 1));
      const Tensor loss = model.head_loss(hidden, targets);
      autograd::backward(
          loss, Tensor::scalar(predicted / static_cast<double>(evaluation.predicted_tokens),
                               loss.dtype(), loss.device()));
    }
    first = end;
  }
  return evaluation;
}

std::optional<double> bits_per_byte(const Evaluation& evaluation,
                                    const std::vector<Tokens>& sequences, const Vocabulary& known,
                                    const Config& config) {
  if (config.vocabulary < known.size()) return std::nullopt;
  const auto& byte_counts = known.byte_counts();
  double bytes = 0;
  for (const Tokens& sequence : sequences) {
    for (std::size_t t = 1; t < sequence.size(); ++t) {
      const auto id = static_cast<std::size_t>(sequence[t]);
      if (id >= static_cast<std::size_t>(known.size())) return std::nullopt;
      const std::uint32_t count = known.is_bytes() ? 1 : byte_counts[id];
      if (count == 0) return std::nullopt;
      bytes += count;
    }
  }
  return evaluation.loss / std::numbers::ln2 * static_cast<double>(evaluation.predicted_tokens) /
         bytes;
}

}  // namespace ringside::transformer
