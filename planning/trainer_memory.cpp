#include "planning/trainer_memory.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace ringside::planning {
namespace {

using transformer::Config;
using Elements = std::vector<std::int64_t>;  // of each parameter

constexpr std::int64_t bytes_of_number = 4, bytes_of_moments = 8, bytes_of_step_count = 4;

// The parameters of one block in the order of transformer/layers.cpp.
Elements block(const Config& config, std::int64_t t) {
  const std::int64_t d = config.d_model, q = config.heads * config.head_size() / t * d,
                     kv = std::max<std::int64_t>(1, config.kv_heads / t) * config.head_size() * d,
                     f = config.d_ff / t * d;
  return {d, q, kv, kv, q, d, f, f, f};
}

// The table of the tokens on one rank: rounded up.
std::int64_t table_of(const Config& config, std::int64_t t) {
  return (config.vocabulary + t - 1) / t * config.d_model;
}

// All parameters of the part in the order of transformer/model.cpp. A tied head has none of its own
// beside the embedding.
Elements all_parameters(const Config& config, const TrainerPart& part) {
  const std::int64_t table = table_of(config, part.tensor_ranks);
  Elements all;
  if (part.embedding) all.push_back(table);
  for (std::int64_t i = 0; i < part.blocks; ++i)
    std::ranges::copy(block(config, part.tensor_ranks), back_inserter(all));
  if (part.head) all.push_back(config.d_model);
  if (part.head && !(config.tied_head && part.embedding)) all.push_back(table);
  return all;
}

// Buckets as ddp/buckets.hpp plans them: in reverse order, the first one smaller.
std::vector<Elements> buckets_of(Elements all, double bucket_mb) {
  const double limit = std::floor(bucket_mb * 1e6) + 1, first_limit = std::min(limit, 1e6);
  std::vector<Elements> buckets;
  double bytes = 0;
  std::ranges::reverse(all);
  for (const std::int64_t elements : all) {
    const double more = static_cast<double>(elements * bytes_of_number);
    if (buckets.empty() || bytes + more > (buckets.size() == 1 ? first_limit : limit))
      buckets.emplace_back(), bytes = 0;
    buckets.back().push_back(elements), bytes += more;
  }
  return buckets;
}

// Units as zero/wrap_policy.hpp divides the model: the embedding, each block, norm and head. A tied
// embedding belongs to the last of these. A unit's parameters lie in reverse order.
std::vector<Elements> units_of(const Config& config, const TrainerPart& part) {
  const std::int64_t table = table_of(config, part.tensor_ranks);
  Elements reversed = block(config, part.tensor_ranks);
  std::ranges::reverse(reversed);
  std::vector<Elements> units(static_cast<std::size_t>(part.blocks), reversed);
  const bool tied = config.tied_head && part.embedding && part.head;
  if (part.head)
    units.push_back(tied ? Elements{config.d_model, table} : Elements{table, config.d_model});
  if (part.embedding && !tied) units.push_back({table});
  return units;
}

// One rank's shard of a bucket, in elements, as zero/shard_plan.hpp rounds it up.
std::int64_t shard_of(std::int64_t elements, std::int64_t ranks) {
  constexpr std::int64_t cache_line = 64 / bytes_of_number;
  const std::int64_t each = (elements + ranks - 1) / ranks;
  return (each + cache_line - 1) / cache_line * cache_line;
}

// AdamW's state for the parts of parameters that lie in a rank's shard of a bucket.
std::int64_t optimizer_state(const Elements& bucket, std::int64_t shard, std::int64_t rank) {
  std::int64_t bytes = 0, begin = 0;
  for (const std::int64_t elements : bucket) {
    const std::int64_t here =
        std::min(begin + elements, (rank + 1) * shard) - std::max(begin, rank * shard);
    if (here > 0) bytes += here * bytes_of_moments + bytes_of_step_count;
    begin += elements;
  }
  return bytes;
}

}  // namespace

TrainerMemory trainer_memory(const Config& config, const TrainerPart& part, int stage,
                             std::int64_t ranks, std::int64_t rank, double bucket_mb) {
  TrainerMemory memory;
  const Elements all = all_parameters(config, part);
  if (stage == 0) {
    for (const std::int64_t elements : all) {
      memory.parameters += elements * bytes_of_number;
      memory.optimizer_state += elements * bytes_of_moments + bytes_of_step_count;
    }
    memory.gradients = memory.parameters;
    return memory;
  }
  for (const Elements& bucket : stage == 3 ? units_of(config, part) : buckets_of(all, bucket_mb)) {
    std::int64_t elements = 0;
    for (const std::int64_t each : bucket) elements += each;
    const std::int64_t shard = shard_of(elements, ranks), whole = shard * ranks;
    memory.parameters += (stage == 3 ? shard : whole) * bytes_of_number;
    memory.gradients += (stage >= 2 ? shard : whole) * bytes_of_number;
    memory.optimizer_state += optimizer_state(bucket, shard, rank);
  }
  return memory;
}

}  // namespace ringside::planning
