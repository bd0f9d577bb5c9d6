#include "zero/parameter_shards.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::Tensor;

ParameterShards parameter_shards(const ShardLayout& plan,
                                 const std::vector<Tensor>& bucket_shards) {
  ParameterShards shards;
  for (std::size_t b = 0; b < bucket_shards.size(); ++b) {
    shards.emplace_back();
    for (std::size_t e = 0; e < plan.buckets()[b].entries.size(); ++e)
      shards[b].push_back(plan.parameter_shard(bucket_shards[b], {b, e}));
  }
  return shards;
}

Tensor move_into_flat_memory(const ShardLayout& plan, std::size_t b) {
  const autograd::MemoryScope scope(autograd::MemoryKind::parameters);
  const ddp::Bucket& bucket = plan.buckets()[b];
  const Tensor flat = Tensor::zeros({plan.padded_elements(b)}, bucket.dtype, bucket.device);
  for (const ddp::BucketEntry& entry : bucket.entries) {
    const Tensor view = ddp::view_in(flat, entry);
    view.copy_(entry.parameter.tensor);
    entry.parameter.tensor.set_data(view);
  }
  return flat;
}

void visit_parameters(const std::vector<NamedTensor>& named, const ShardLayout& plan,
                      const ParameterShards& shards, collectives::ProcessGroup& group,
                      const SeeTensor& see) {
  for (const auto& [name, parameter] : named) {
    const auto location = plan.find(parameter);
    const Tensor whole =
        location ? collect(shards[location->bucket][location->entry], plan.ranges(*location),
                           parameter.shape(), plan.shard_dtype(location->bucket), group, name)
                 : parameter;
    if (whole.defined() && group.rank() == 0) see({name, whole});
  }
}

void visit_gradients(const std::vector<NamedTensor>& named, const ShardLayout& plan,
                     const ParameterShards& shards, const HasGradient& has_gradient,
                     collectives::ProcessGroup& group, const SeeTensor& see) {
  for (const auto& [name, parameter] : named) {
    const auto location = plan.find(parameter);
    if (!location || !has_gradient[location->bucket][location->entry]) continue;
    const Tensor& shard = shards[location->bucket][location->entry];
    const Tensor whole =
        collect(shard.defined() ? shard.grad() : Tensor(), plan.ranges(*location),
                parameter.shape(), plan.shard_dtype(location->bucket), group, name);
    if (whole.defined()) see({name, whole});
  }
}

}  // namespace ringside::zero
