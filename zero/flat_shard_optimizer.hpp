// The optimizer of the stages that divide flat memory evenly: it updates this rank's shard of every
// parameter.
#pragma once

#include <functional>
#include <vector>

#include "zero/parameter_shards.hpp"
#include "zero/sharded_optimizer.hpp"

namespace ringside::zero {

class FlatShardOptimizer final : public ShardedOptimizer {
 public:
  // `plan` and `group` must outlive this object. step() calls `after_step` on every rank, after the
  // update of this rank's shards. Throws Error if a parameter is in no bucket of the plan.
  FlatShardOptimizer(std::vector<autograd::ParameterGroup> groups, collectives::ProcessGroup& group,
                     Make make, const ShardLayout& plan, ParameterShards shards,
                     std::function<void()> after_step);

  void step() override;
  std::vector<ShardRange> ranges(std::size_t g, std::size_t i) const override;
  autograd::DType shard_dtype(std::size_t g, std::size_t i) const override;

 private:
  std::vector<autograd::NamedTensor> shards_of(const autograd::ParameterGroup& group) override;
  ParameterLocation location_of(const autograd::NamedTensor& parameter) const;

  const ShardLayout& plan_;
  ParameterShards shards_;
  std::function<void()> after_step_;
};

}  // namespace ringside::zero
