#include "zero/gradients.hpp"

#include "parallel/replicate.hpp"

namespace ringside::zero {

ShardedGradients::ShardedGradients(const autograd::Module& module, collectives::ProcessGroup& group,
                                   double bucket_mb)
    : named_(module.named_parameters()),
      group_(group),
      plan_(ddp::plan_buckets(module, bucket_mb), group.rank(), group.size()) {
  ddp::replicate(module, group);
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b)
    parameters_.push_back(move_into_flat_memory(plan_, b));
  slices_ = slices_of(plan_, shards_of(plan_, parameters_));
  gradients_ = std::make_unique<GradientShards>(plan_, group_, slices_);
}

std::unique_ptr<PartitionedOptimizer> ShardedGradients::make_optimizer(
    std::vector<autograd::ParameterGroup> groups, PartitionedOptimizer::Make make) {
  return std::make_unique<SliceOptimizer>(
      std::move(groups), group_, std::move(make), plan_, slices_,
      [this] { gather_parameters(plan_, parameters_, group_); });
}

}  // namespace ringside::zero
