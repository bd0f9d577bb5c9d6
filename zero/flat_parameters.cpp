#include "zero/flat_parameters.hpp"

#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::zero {

using autograd::Tensor;

FlatParameters::FlatParameters(const autograd::Module& module, std::vector<ddp::Bucket> buckets,
                               collectives::ProcessGroup& group)
    : named_(module.named_parameters()),
      group_(group),
      plan_(std::move(buckets), group.rank(), group.size()) {
  ddp::replicate(module, group);
  std::vector<Tensor> bucket_shards;
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    flats_.push_back(move_into_flat_memory(plan_, b));
    bucket_shards.push_back(plan_.shard_of(flats_[b], b));
  }
  shards_ = parameter_shards(plan_, bucket_shards);
}

std::unique_ptr<ShardedOptimizer> FlatParameters::make_optimizer(
    std::vector<autograd::ParameterGroup> groups, ShardedOptimizer::Make make) {
  return std::make_unique<FlatShardOptimizer>(std::move(groups), group_, std::move(make), plan_,
                                              shards_, [this] { all_gather(); });
}

// Every rank has updated its own shard of each bucket: fetches those of the other ranks.
void FlatParameters::all_gather() {
  std::vector<ddp::ScopedWork> under_way;
  for (std::size_t b = 0; b < flats_.size(); ++b)
    under_way.push_back(ddp::all_gather_async(plan_.shard_of(flats_[b], b), flats_[b], group_,
                                              fmt::format("parameters of bucket {}", b)));
  for (const ddp::ScopedWork& work : under_way) work.wait();
}

void FlatParameters::visit_parameters(const SeeTensor& see) const {
  zero::visit_parameters(named_, plan_, shards_, group_, see);
}

void FlatParameters::visit_gradients(const HasGradient& has_gradient, const SeeTensor& see) const {
  zero::visit_gradients(named_, plan_, shards_, has_gradient, group_, see);
}

}  // namespace ringside::zero
