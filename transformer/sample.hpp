// Text out of a model: one token after another, each drawn from the odds that the model gives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transformer/model.hpp"

namespace ringside::transformer {

struct SampleOptions {
  double temperature =
      0.8;  // logits are divided by it: below 1 the likely become likelier; 0: always the likeliest
  std::int64_t top_k = 0;  // only so many of the likeliest tokens are drawn from (Fan et al., 2018,
                           // section 5.1); 0: all
  std::uint64_t seed = 0;  // the same seed, model and beginning give the same text
};

// The token that `uniform`, a number in [0, 1), falls on when the odds of `logits` are laid end to
// end, likeliest first. Among equal logits the smaller token comes first. Throws Error if there are
// no logits, one is not a number, or an option makes no sense.
std::int32_t pick_token(std::span<const double> logits, const SampleOptions& options,
                        double uniform);

// `count` tokens that continue `beginning` (at least one token), without it. Keys and values of
// what was seen are kept, so a token costs one token's work. The model sees all from the beginning
// as long as that fits into config.sequence (of a longer beginning, the last so many tokens);
// whenever no more fits, it goes on from the last half of what it saw.
std::vector<std::int32_t> generate(const Model& model, std::vector<std::int32_t> beginning,
                                   std::int64_t count, const SampleOptions& options = {});

}  // namespace ringside::transformer
