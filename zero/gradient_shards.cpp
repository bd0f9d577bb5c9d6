#include "zero/gradient_shards.hpp"

#include <algorithm>

#include "autograd/kernels/copy.hpp"
#include "parallel/replicate.hpp"

namespace ringside::zero {

using autograd::MemoryKind;
using autograd::MemoryScope;
using autograd::Tensor;

GradientShards::GradientShards(const ShardPlan& plan, collectives::ProcessGroup& group,
                               Slices slices)
    : plan_(plan),
      group_(group),
      slices_(std::move(slices)),
      begun_(plan.buckets().size()),
      queue_(
          plan.buckets(), [this](std::size_t b, std::size_t e) { settle(b, e); },
          [this](std::size_t b, const std::string& label) { launch(b, label); }) {
  const MemoryScope scope(MemoryKind::gradients);
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    const ddp::Bucket& bucket = plan_.buckets()[b];
    shards_.push_back(Tensor::zeros({plan_.shard_elements(b)}, bucket.dtype, bucket.device));
    flats_.push_back(Tensor::empty({plan_.padded_elements(b)}, bucket.dtype, bucket.device));
    flats_[b].storage()->drop();
    seen_.emplace_back(bucket.entries.size());
    has_gradient_.emplace_back(bucket.entries.size());
  }
}

void GradientShards::settle(std::size_t b, std::size_t e) {
  if (ended_) finish_backward();
  const ddp::BucketEntry& entry = plan_.buckets()[b].entries[e];
  open(b);
  ddp::view_in(flats_[b], entry).copy_(entry.parameter.tensor.grad());
  entry.parameter.tensor.set_grad({});
}

void GradientShards::open(std::size_t b) {
  while (std::any_of(under_way_.begin(), under_way_.end(),
                     [&](const UnderWay& each) { return each.bucket == b; }))
    close_first();
  if (flats_[b].storage()->data() != nullptr) return;
  while (under_way_.size() > most_under_way ||
         (!under_way_.empty() && under_way_.front().work.done()))
    close_first();
  flats_[b].storage()->restore();
  const std::int64_t elements = plan_.buckets()[b].elements,
                     padding = plan_.padded_elements(b) - elements;
  if (padding > 0)
    Tensor::view_of(flats_[b].storage(), elements, {padding}, flats_[b].dtype()).fill_(0);
}

void GradientShards::launch(std::size_t b, const std::string& label) {
  open(b);  // where it has no gradient at all: another rank may
  const auto& entries = plan_.buckets()[b].entries;
  for (std::size_t e = 0; e < entries.size(); ++e)
    if (!queue_.has_gradient(b, e)) ddp::view_in(flats_[b], entries[e]).fill_(0);
  under_way_.push_back(
      {b, ddp::average_block_async(flats_[b], plan_.shard_of(flats_[b], b), group_, label)});
}

void GradientShards::close_first() {
  const auto [b, work] = under_way_.front();
  work.wait();
  under_way_.pop_front();
  const Tensor block = plan_.shard_of(flats_[b], b);
  if (begun_[b])
    autograd::accumulate_into(shards_[b], block);
  else
    shards_[b].copy_(block);
  begun_[b] = true;
  flats_[b].storage()->drop();
}

void GradientShards::finish_backward() {
  ended_ = false;
  queue_.launch_rest();
  for (std::size_t b = 0; b < seen_.size(); ++b)
    for (std::size_t e = 0; e < seen_[b].size(); ++e)
      seen_[b][e] = seen_[b][e] || queue_.has_gradient(b, e);
  queue_.start_over();
}

void GradientShards::finish() {
  finish_backward();
  while (!under_way_.empty()) close_first();
  for (std::size_t b = 0; b < slices_.size(); ++b) {
    for (std::size_t e = 0; e < slices_[b].size(); ++e) {
      if (slices_[b][e].defined())
        slices_[b][e].set_grad(seen_[b][e] ? plan_.slice_of(shards_[b], {b, e}) : Tensor());
    }
    has_gradient_[b] = seen_[b];
    seen_[b].assign(seen_[b].size(), false);
    begun_[b] = false;
  }
}

std::size_t GradientShards::open() const {
  return static_cast<std::size_t>(
      std::count_if(flats_.begin(), flats_.end(),
                    [](const Tensor& flat) { return flat.storage()->data() != nullptr; }));
}

}  // namespace ringside::zero
