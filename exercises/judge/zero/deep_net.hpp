// The net of the judge of stage 2, and one step of it.
#pragma once

#include <memory>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "exercises/judge/judge.hpp"
#include "exercises/judge/zero/sharded_method.hpp"

namespace ringside::exercises {

// Twenty layers of one size, each a bucket.
class DeepNet final : public autograd::Module {
 public:
  static constexpr std::int64_t depth = 20, width = 16;
  static constexpr double bucket_mb = width * (width + 1) * 8 / 1e6;
  explicit DeepNet(std::uint64_t seed);
  autograd::Tensor loss(std::uint64_t seed, std::uint64_t batch) const;
  std::vector<std::unique_ptr<autograd::Linear>> layers;
};

// One step, whose calls reach the network only when backward waits, or has ended: without a limit
// every bucket would be filled first.
// Returns the bytes of gradients: {"peak", "kept"}; buckets: {"open", "open at the end"}; {"calls",
// "sent"} as calls_of() does; and whether the first call was waited for only after it had ended or
// the second had started: "overlaps".
Json step_of_deep_net(World& world, const std::function<MakeShardedMethod>& student);

}  // namespace ringside::exercises
