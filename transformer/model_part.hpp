// ModelPart: which part of a model a rank holds, when matrices are divided among ranks (tensor
// parallel), layers among stages (pipeline parallel) and experts among ranks (expert parallel).
#pragma once

#include <cstdint>
#include <vector>

#include "transformer/config.hpp"

namespace ringside::transformer {

struct ModelPart {
  // This rank's place among the ranks that share every matrix.
  int tensor_rank = 0, tensor_ranks = 1;
  // This rank's place among the ranks that divide the experts of every block.
  int expert_rank = 0, expert_ranks = 1;
  // The blocks that this rank holds, ascending. Empty: all.
  std::vector<std::int64_t> layers;
  bool embedding = true;
  bool head = true;  // and the norm before it

  bool holds_layer(std::int64_t layer) const;
  // The blocks, with their numbers in the whole model.
  std::vector<std::int64_t> layers_of(const Config& config) const;
};

// Throws Error, one sentence that says what would fit, unless so many ranks can share the matrices:
// heads and d_ff divide by their number, kv_heads divides by it or divides it, and every rank gets
// a row of the vocabulary.
void require_divisible(const Config& config, int tensor_ranks);

// The same for the ranks that divide the experts: their number divides that of the experts.
void require_experts_divisible(const Config& config, int expert_ranks);

// Throws Error if the part is not one of this model: a layer that it does not have, not ascending,
// or ranks that cannot share it.
void validate(const ModelPart& part, const Config& config);

}  // namespace ringside::transformer
