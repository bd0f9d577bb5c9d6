// TrainerMemory: what a rank of `ringside train` keeps between steps, to the byte.
//
// The formulas of formulas/state.hpp divide evenly. The trainer keeps a little more: shards are
// padded to cache lines (zero/shard_plan.hpp), and AdamW counts the steps of each parameter.
#pragma once

#include <cstdint>

#include "transformer/config.hpp"

namespace ringside::planning {

struct TrainerMemory {
  std::int64_t parameters = 0, gradients = 0, optimizer_state = 0;  // bytes
  std::int64_t total() const { return parameters + gradients + optimizer_state; }
  bool operator==(const TrainerMemory&) const = default;
};

// The part of the model on a rank.
struct TrainerPart {
  std::int64_t blocks = 0;
  bool embedding = true, head = true;
  std::int64_t tensor_ranks = 1;
};

// fp32 and AdamW. `stage` is that of ZeRO, 0 for all other strategies; `bucket_mb` is the limit of
// a bucket in 10^6 bytes, for stages 1 and 2.
TrainerMemory trainer_memory(const transformer::Config& config, const TrainerPart& part, int stage,
                             std::int64_t ranks, std::int64_t rank, double bucket_mb = 25);

}  // namespace ringside::planning
