// Between how many ranks an elastic run stays: MIN and MAX of `--elastic MIN:MAX`.
#pragma once

#include <cstdint>
#include <string>

namespace ringside::training {

struct Plan;

struct ElasticSizes {
  int smallest = 1, largest = 1;

  // From "2:4". Throws Error.
  static ElasticSizes parse(const std::string& text);

  // Its multiples divide among any of these numbers of ranks. In sequences. Throws Error if there
  // is none that a batch can have.
  std::int64_t smallest_batch() const;

  // Why a run with this plan cannot be elastic, in a sentence for its user; empty: it can.
  std::string obstacle(const Plan& plan) const;
};

}  // namespace ringside::training
