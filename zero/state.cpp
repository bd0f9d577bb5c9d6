#include "zero/state.hpp"

#include "parallel/replicate.hpp"

namespace ringside::zero {

using autograd::Tensor;

ShardedState::ShardedState(const autograd::Module& module, collectives::ProcessGroup& group,
                           double bucket_mb)
    : named_(module.named_parameters()),
      group_(group),
      plan_(ddp::plan_buckets(module, bucket_mb), group.rank(), group.size()),
      queue_(
          plan_.buckets(), [this](std::size_t b, std::size_t e) { settle(b, e); },
          [this](std::size_t b, const std::string& label) { launch(b, label); }) {
  ddp::replicate(module, group);
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    parameters_.push_back(move_into_flat_memory(plan_, b));
    const autograd::MemoryScope gradients(autograd::MemoryKind::gradients);
    gradients_.push_back(Tensor::zeros({plan_.padded_elements(b)}, plan_.buckets()[b].dtype,
                                       plan_.buckets()[b].device));
    for (const ddp::BucketEntry& entry : plan_.buckets()[b].entries)
      entry.parameter.tensor.set_grad(ddp::view_in(gradients_[b], entry));
    has_gradient_.emplace_back(plan_.buckets()[b].entries.size());
  }
  slices_ = slices_of(plan_, shards_of(plan_, parameters_));
}

void ShardedState::settle(std::size_t b, std::size_t e) {
  const ddp::BucketEntry& entry = plan_.buckets()[b].entries[e];
  const Tensor &parameter = entry.parameter.tensor, place = ddp::view_in(gradients_[b], entry);
  if (parameter.grad().storage() == gradients_[b].storage()) return;
  place.copy_(parameter.grad());  // backward made a new gradient, because the view had been dropped
  parameter.set_grad(place);
}

void ShardedState::launch(std::size_t b, const std::string& label) {
  const auto& entries = plan_.buckets()[b].entries;
  for (std::size_t e = 0; e < entries.size(); ++e)
    if (!queue_.has_gradient(b, e))
      ddp::view_in(gradients_[b], entries[e]).fill_(0);  // whatever was there is of an earlier step
  under_way_.push_back(
      ddp::average_block_async(gradients_[b], plan_.shard_of(gradients_[b], b), group_, label));
}

void ShardedState::finish() {
  queue_.launch_rest();
  for (const auto& work : std::exchange(under_way_, {})) work.wait();
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    const Tensor averaged = plan_.shard_of(gradients_[b], b);
    for (std::size_t e = 0; e < plan_.buckets()[b].entries.size(); ++e) {
      has_gradient_[b][e] = queue_.has_gradient(b, e);
      if (slices_[b][e].defined())
        slices_[b][e].set_grad(has_gradient_[b][e] ? plan_.slice_of(averaged, {b, e}) : Tensor());
      if (!has_gradient_[b][e]) plan_.buckets()[b].entries[e].parameter.tensor.set_grad({});
    }
  }
  queue_.start_over();
}

std::unique_ptr<PartitionedOptimizer> ShardedState::make_optimizer(
    std::vector<autograd::ParameterGroup> groups, PartitionedOptimizer::Make make) {
  return std::make_unique<SliceOptimizer>(
      std::move(groups), group_, std::move(make), plan_, slices_,
      [this] { gather_parameters(plan_, parameters_, group_); });
}

}  // namespace ringside::zero
