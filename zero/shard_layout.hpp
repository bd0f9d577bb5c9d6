// Which part of each parameter a rank keeps, when every bucket is divided into equal shards.
//
//     bucket    [ a            | b               | c    |~~~~]   parameters, then padding (~)
//     shards    [ rank 0     ][ rank 1     ][ rank 2         ]   all of one length
//     ranges      a[0:13)       a[13:15)      b[11:18) c[0:7)
//                               b[0:11)
//
// A shard starts at a cache line: its length is a multiple of 64 bytes, and padding fills the last
// one. The padding is sent and stored too. (ProcessGroup::reduce_scatter and all_gather would also
// take blocks whose lengths differ by one element.)
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ddp/buckets.hpp"

namespace ringside::zero {

// Elements begin .. begin + count of a parameter, in row-major order.
struct ShardRange {
  std::int64_t begin = 0, count = 0;
};

// Where the plan keeps a parameter.
struct ParameterLocation {
  std::size_t bucket = 0, entry = 0;
};

class ShardLayout {
 public:
  // With `fp32_shards` the shards of a bf16 bucket are fp32: what a small step adds is not rounded
  // away.
  ShardLayout(std::vector<ddp::Bucket> buckets, int rank, int ranks, bool fp32_shards = false);

  const std::vector<ddp::Bucket>& buckets() const { return buckets_; }
  int ranks() const { return ranks_; }

  // The length of one rank's shard of a bucket, and of all shards together.
  std::int64_t shard_elements(std::size_t bucket) const;
  std::int64_t padded_elements(std::size_t bucket) const { return shard_elements(bucket) * ranks_; }
  // What a rank keeps of the bucket, parameters and gradients, has this dtype.
  autograd::DType shard_dtype(std::size_t bucket) const;
  // Bytes of all buckets, padding included.
  std::int64_t padded_bytes() const;

  // The elements of a parameter that `rank` keeps; count is 0 if there are none.
  ShardRange range(ParameterLocation location, int rank) const;
  ShardRange range(ParameterLocation location) const { return range(location, rank_); }
  // The ranges of all ranks: [rank].
  std::vector<ShardRange> ranges(ParameterLocation location) const;

  // Nothing if the parameter is in no bucket, because it is frozen or belongs to another model.
  std::optional<ParameterLocation> find(const autograd::Tensor& parameter) const;

  // A view of this rank's shard of `flat`, [padded_elements(bucket)]: memory laid out as the
  // bucket.
  autograd::Tensor shard_of(const autograd::Tensor& flat, std::size_t bucket) const;
  // A view, [count], of the elements of one parameter in this rank's shard of its bucket; undefined
  // if there are none. `shard` is a result of shard_of(), or a copy of one.
  autograd::Tensor parameter_shard(const autograd::Tensor& shard, ParameterLocation location) const;

 private:
  std::vector<ddp::Bucket> buckets_;
  int rank_, ranks_;
  bool fp32_shards_;
};

}  // namespace ringside::zero
