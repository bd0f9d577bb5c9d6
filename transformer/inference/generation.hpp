// Generation: a model continues a prompt, one sampled token at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transformer/model.hpp"

namespace ringside::transformer {

struct SampleOptions {
  // Logits are divided by it. Below 1 it favours likely tokens; at 0 the likeliest is always taken.
  double temperature = 0.8;

  // Draw only from this many of the likeliest tokens (Fan et al., 2018, section 5.1); 0: from all.
  std::int64_t top_k = 0;

  // The same seed, model and prompt give the same text.
  std::uint64_t seed = 0;
};

// Samples one token by inverting the cumulative distribution: sorts the tokens by probability,
// likeliest first, and returns the one whose interval contains `uniform`, a number in [0, 1).
// Equal logits are sorted by token id. Throws Error if there are no logits, one is not a number,
// or an option is out of range.
std::int32_t pick_token(std::span<const double> logits, const SampleOptions& options,
                        double uniform);

// Returns `count` tokens that continue `prompt` (at least one token), without the prompt. With the
// KV cache, each costs one token's work.
//
// The model sees at most config.sequence tokens: the whole text while it fits, or the end of a
// longer prompt. When the window is full, generation continues with its last half.
std::vector<std::int32_t> generate(const Model& model, std::vector<std::int32_t> prompt,
                                   std::int64_t count, const SampleOptions& options = {});

}  // namespace ringside::transformer
