#include "zero/shard_layout.hpp"

#include <algorithm>

namespace ringside::zero {

using autograd::Tensor;

ShardLayout::ShardLayout(std::vector<ddp::Bucket> buckets, int rank, int ranks, bool fp32_shards)
    : buckets_(std::move(buckets)), rank_(rank), ranks_(ranks), fp32_shards_(fp32_shards) {}

std::int64_t ShardLayout::shard_elements(std::size_t bucket) const {
  const auto cache_line = static_cast<std::int64_t>(64 / autograd::size_of(buckets_[bucket].dtype));
  const std::int64_t each = (buckets_[bucket].elements + ranks_ - 1) / ranks_;
  return (each + cache_line - 1) / cache_line * cache_line;
}

autograd::DType ShardLayout::shard_dtype(std::size_t bucket) const {
  const autograd::DType dtype = buckets_[bucket].dtype;
  return fp32_shards_ ? autograd::compute_dtype(dtype) : dtype;
}

std::int64_t ShardLayout::padded_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    bytes += padded_elements(b) * static_cast<std::int64_t>(autograd::size_of(buckets_[b].dtype));
  return bytes;
}

ShardRange ShardLayout::range(ParameterLocation location, int rank) const {
  const ddp::BucketEntry& entry = buckets_[location.bucket].entries[location.entry];
  const std::int64_t shard = shard_elements(location.bucket);
  const std::int64_t elements = entry.parameter.tensor.elements();
  const std::int64_t begin = std::clamp(rank * shard - entry.begin, std::int64_t{0}, elements);
  const std::int64_t end = std::clamp((rank + 1) * shard - entry.begin, std::int64_t{0}, elements);
  return {begin, end - begin};
}

std::vector<ShardRange> ShardLayout::ranges(ParameterLocation location) const {
  std::vector<ShardRange> all;
  for (int rank = 0; rank < ranks_; ++rank) all.push_back(range(location, rank));
  return all;
}

std::optional<ParameterLocation> ShardLayout::find(const Tensor& parameter) const {
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::size_t e = 0; e < buckets_[b].entries.size(); ++e)
      if (buckets_[b].entries[e].parameter.tensor.is_same(parameter))
        return ParameterLocation{b, e};
  return std::nullopt;
}

Tensor ShardLayout::shard_of(const Tensor& flat, std::size_t bucket) const {
  const std::int64_t shard = shard_elements(bucket);
  return Tensor::view_of(flat.storage(), flat.offset() + rank_ * shard, {shard}, flat.dtype());
}

Tensor ShardLayout::parameter_shard(const Tensor& shard, ParameterLocation location) const {
  const auto [begin, count] = range(location);
  if (count == 0) return {};
  const std::int64_t in_bucket = buckets_[location.bucket].entries[location.entry].begin + begin;
  const std::int64_t in_shard = in_bucket - rank_ * shard_elements(location.bucket);
  return Tensor::view_of(shard.storage(), shard.offset() + in_shard, {count}, shard.dtype());
}

}  // namespace ringside::zero
