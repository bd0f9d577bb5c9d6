#include "zero/flat_shard_optimizer.hpp"

#include "base/error.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::ParameterGroup;

FlatShardOptimizer::FlatShardOptimizer(std::vector<ParameterGroup> groups,
                                       collectives::ProcessGroup& group, Make make,
                                       const ShardLayout& plan, ParameterShards shards,
                                       std::function<void()> after_step)
    : ShardedOptimizer(std::move(groups), group, std::move(make)),
      plan_(plan),
      shards_(std::move(shards)),
      after_step_(std::move(after_step)) {
  add_shards_of_all_groups();
}

void FlatShardOptimizer::step() {
  step_shards();
  after_step_();
}

std::vector<NamedTensor> FlatShardOptimizer::shards_of(const ParameterGroup& group) {
  std::vector<NamedTensor> mine;
  for (const NamedTensor& parameter : group.parameters) {
    const auto [bucket, entry] = location_of(parameter);
    if (shards_[bucket][entry].defined()) mine.push_back({parameter.name, shards_[bucket][entry]});
  }
  return mine;
}

std::vector<ShardRange> FlatShardOptimizer::ranges(std::size_t g, std::size_t i) const {
  return plan_.ranges(location_of(groups()[g].parameters[i]));
}

autograd::DType FlatShardOptimizer::shard_dtype(std::size_t g, std::size_t i) const {
  return plan_.shard_dtype(location_of(groups()[g].parameters[i]).bucket);
}

ParameterLocation FlatShardOptimizer::location_of(const NamedTensor& parameter) const {
  const auto location = plan_.find(parameter.tensor);
  require(location.has_value(),
          "the optimizer is given '{}', which is not among the sharded parameters: it was frozen "
          "when the model was sharded, or it belongs to another model",
          parameter.name);
  return *location;
}

}  // namespace ringside::zero
