#include "zero/gradient_shards.hpp"

#include <algorithm>

#include "autograd/kernels/copy.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::zero {

using autograd::Tensor;

GradientShards::GradientShards(const ShardLayout& plan, collectives::ProcessGroup& group,
                               ParameterShards shards)
    : BucketQueue(plan.buckets(), group),
      plan_(plan),
      parameter_shards_(std::move(shards)),
      accumulated_(plan.buckets().size()) {
  const autograd::MemoryScope scope(autograd::MemoryKind::gradients);
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    const ddp::Bucket& bucket = buckets()[b];
    shards_.push_back(
        Tensor::zeros({plan_.shard_elements(b)}, plan_.shard_dtype(b), bucket.device));
    flats_.push_back(Tensor::empty({plan_.padded_elements(b)}, bucket.dtype, bucket.device));
    flats_[b].storage()->drop();
    seen_.emplace_back(bucket.entries.size());
  }
  had_gradient_ = seen_;
}

void GradientShards::before_gradient() {
  if (backward_ended_) finish_backward(false);
}

void GradientShards::copy_into_bucket(std::size_t b, std::size_t e) {
  const ddp::BucketEntry& entry = buckets()[b].entries[e];
  allocate(b);
  ddp::view_in(flats_[b], entry).copy_(entry.parameter.tensor.grad());
  entry.parameter.tensor.set_grad({});
}

void GradientShards::zero_in_bucket(std::size_t b, std::size_t e) {
  allocate(b);  // it may lack all its gradients, and another rank may have some
  ddp::view_in(flats_[b], buckets()[b].entries[e]).fill_(0);
}

void GradientShards::launch(std::size_t b, const std::string& label) {
  while (under_way_.size() >= most_under_way) finish_oldest();
  under_way_.push_back(
      {b, ddp::reduce_scatter_mean_async(flats_[b], plan_.shard_of(flats_[b], b), group_, label)});
}

void GradientShards::allocate(std::size_t b) {
  // The bucket of the previous micro-batch may still be under way.
  const auto is_under_way = [&] {
    return std::any_of(under_way_.begin(), under_way_.end(),
                       [&](const UnderWay& each) { return each.bucket == b; });
  };
  while (is_under_way()) finish_oldest();
  if (flats_[b].storage()->data() != nullptr) return;
  while (!under_way_.empty() && under_way_.front().work.done()) finish_oldest();

  flats_[b].storage()->restore();
  const std::int64_t elements = buckets()[b].elements;
  const std::int64_t padding = plan_.padded_elements(b) - elements;
  if (padding > 0)
    Tensor::view_of(flats_[b].storage(), elements, {padding}, flats_[b].dtype()).fill_(0);
}

void GradientShards::finish_oldest() {
  const std::size_t b = under_way_.front().bucket;
  wait(under_way_.front().work, b);
  under_way_.pop_front();
  const Tensor mean = plan_.shard_of(flats_[b], b);
  if (accumulated_[b])
    autograd::accumulate_into(shards_[b], mean);
  else
    autograd::convert_into(shards_[b], mean);
  accumulated_[b] = true;
  flats_[b].storage()->drop();
}

bool GradientShards::has_any_gradient(std::size_t b) const {
  for (std::size_t e = 0; e < buckets()[b].entries.size(); ++e)
    if (has_gradient(b, e)) return true;
  return false;
}

void GradientShards::finish_backward(bool is_last) {
  backward_ended_ = false;
  std::vector<bool> needed(buckets().size());
  for (std::size_t b = 0; b < needed.size(); ++b)
    needed[b] = has_any_gradient(b) || (is_last && seen_[b] == std::vector<bool>(seen_[b].size()));
  launch_needed(needed);
  for (std::size_t b = 0; b < seen_.size(); ++b)
    for (std::size_t e = 0; e < seen_[b].size(); ++e)
      if (has_gradient(b, e)) seen_[b][e] = true;
  start_over();
}

void GradientShards::finish() {
  finish_backward(true);
  while (!under_way_.empty()) finish_oldest();
  for (std::size_t b = 0; b < parameter_shards_.size(); ++b) {
    for (std::size_t e = 0; e < parameter_shards_[b].size(); ++e) {
      const Tensor& shard = parameter_shards_[b][e];
      if (!shard.defined()) continue;
      shard.set_grad(seen_[b][e] ? plan_.parameter_shard(shards_[b], {b, e}) : Tensor());
    }
    had_gradient_[b] = seen_[b];
    seen_[b].assign(seen_[b].size(), false);
    accumulated_[b] = false;
  }
}

std::size_t GradientShards::in_memory() const {
  return static_cast<std::size_t>(
      std::count_if(flats_.begin(), flats_.end(),
                    [](const Tensor& flat) { return flat.storage()->data() != nullptr; }));
}

}  // namespace ringside::zero
