// What a model makes of given sequences: its loss, the odds that it gave to every token, and the
// gradients, to be held against another framework.
#pragma once

#include <cstdint>
#include <vector>

#include "transformer/data/tokens.hpp"
#include "transformer/model.hpp"

namespace ringside::transformer {

struct EvaluateOptions {
  bool gradients = false;  // leave d(loss) / d(parameter) in the model's parameters; what was there
                           // is dropped first
  bool logits = false;     // keep them: T * vocabulary numbers for every sequence
  std::int64_t at_once =
      8;  // most sequences in one forward; only equally long neighbours go together
};

struct Evaluation {
  double loss = 0;  // nats: the mean of -log p over all tokens that were foretold, every one but
                    // each sequence's first
  std::int64_t foretold = 0;  // how many those are
  std::vector<std::vector<double>>
      log_probabilities;                 // [sequence][t]: log p(token t + 1 | tokens 0..t), in nats
  std::vector<autograd::Tensor> logits;  // [sequence]: [T, vocabulary], if asked for
};

// Throws Error with one sentence if the model cannot read these sequences: one that is longer than
// its positions, shorter than two tokens, or has a token that is not in the vocabulary.
void check_sequences(const std::vector<Tokens>& sequences, const Config& config);

// Checks as above. As transformers does it with labels = input_ids, for sequences of equal length.
Evaluation evaluate(const Model& model, const std::vector<Tokens>& sequences,
                    const EvaluateOptions& options = {});

}  // namespace ringside::transformer
