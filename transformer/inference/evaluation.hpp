// Evaluation: the loss of a model on given sequences, with the probability of every token, and its
// gradients: to compare with another framework.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transformer/data/token_file.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/model.hpp"

namespace ringside::transformer {

struct EvaluateOptions {
  // Run backward: afterwards each parameter has d(loss) / d(parameter) as its gradient. Earlier
  // gradients are dropped first.
  bool gradients = false;

  // Keep all logits: T * vocabulary numbers per sequence.
  bool logits = false;

  // Most sequences in one forward pass. Only neighbours of equal length go together.
  std::int64_t at_once = 8;
};

struct Evaluation {
  // The mean of -log p over all predicted tokens, in nats. Every token but the first of each
  // sequence is predicted.
  double loss = 0;
  std::int64_t predicted_tokens = 0;

  // [sequence][t]: log p(token t + 1 | tokens 0..t), in nats.
  std::vector<std::vector<double>> log_probabilities;

  // [sequence]: [T, vocabulary]; empty unless asked for.
  std::vector<autograd::Tensor> logits;
};

// Throws Error if the model cannot read these sequences: one is longer than config.sequence,
// shorter than two tokens, or has a token outside the vocabulary.
void check_sequences(const std::vector<Tokens>& sequences, const Config& config);

// Checks the sequences as above. For sequences of equal length the loss is that of transformers
// with labels = input_ids.
Evaluation evaluate(const Model& model, const std::vector<Tokens>& sequences,
                    const EvaluateOptions& options = {});

// The total loss in bits divided by the bytes of the predicted tokens. None if the bytes of a token
// are unknown: a model with fewer than 256 tokens does not read bytes, and the ids may come from a
// tokenizer that is not there.
std::optional<double> bits_per_byte(const Evaluation& evaluation,
                                    const std::vector<Tokens>& sequences, const Vocabulary& known,
                                    const Config& config);

}  // namespace ringside::transformer
