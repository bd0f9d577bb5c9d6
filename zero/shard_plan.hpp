// Which part of which parameter each rank keeps, where flat memory is shared out evenly.
//
//     bucket    [ a            | b               | c    |~~~~]     parameters end to end; ~ fills up: all shards are equally long
//     shards    [ rank 0     ][ rank 1     ][ rank 2         ]
//     parts       a[0:13)       a[13:15)      b[11:18) c[0:7)
//                               b[0:11)
//
// Shards begin where a cache line does, so a bucket is filled up to a multiple of 64 bytes for each
// rank: at most that much travels, and is kept, in vain. (ProcessGroup::reduce_scatter and
// all_gather would take blocks that differ by an element, too.)
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ddp/buckets.hpp"

namespace ringside::zero {

// Elements begin .. begin + count of a parameter, in its memory order.
struct Part {
  std::int64_t begin = 0, count = 0;
};

class ShardPlan {
 public:
  // Where a parameter lies.
  struct Place {
    std::size_t bucket = 0, entry = 0;
  };

  ShardPlan(std::vector<ddp::Bucket> buckets, int rank, int ranks);

  const std::vector<ddp::Bucket>& buckets() const { return buckets_; }
  std::int64_t shard_elements(std::size_t bucket) const;  // of each rank
  std::int64_t padded_elements(std::size_t bucket) const {
    return shard_elements(bucket) * ranks_;
  }                                   // of all together
  std::int64_t padded_bytes() const;  // of all buckets

  // What `rank` keeps of a parameter; without a rank, this one.
  Part part(Place place, int rank) const;
  Part part(Place place) const { return part(place, rank_); }

  // Nothing for a parameter that is in no bucket: one that is frozen.
  std::optional<Place> find(const autograd::Tensor& parameter) const;

  // This rank's block of memory that is laid out as a bucket and filled up.
  autograd::Tensor shard_of(const autograd::Tensor& flat, std::size_t bucket) const;
  // Of a shard, in memory of its own or in such a block: what it has of one parameter, as a row of
  // numbers; undefined where that is none.
  autograd::Tensor slice_of(const autograd::Tensor& shard, Place place) const;

 private:
  std::vector<ddp::Bucket> buckets_;
  int rank_, ranks_;
};

}  // namespace ringside::zero
