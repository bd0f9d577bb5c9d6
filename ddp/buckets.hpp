// Which gradients travel together.
//
// Parameters are taken in REVERSE order of registration, because backward finishes the last layers
// first, and are put into the open bucket as long as it stays within the limit:
//
//     registered    embed   layer 1   layer 2   head            limit: two layers
//     buckets       0: head | 1: layer 2, layer 1 | 2: embed
//
// The first bucket has a limit of its own, a small one, so that the network has something to do
// early in backward. A parameter that is larger than the limit has a bucket to itself. All of a
// bucket is of one type and on one device. The plan depends on shapes and types alone, so every
// rank makes the same.
//
// Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
// VLDB 2020, section 3.2.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "autograd/nn/module.hpp"

namespace ringside::ddp {

// One parameter's place in its bucket.
struct BucketEntry {
  autograd::NamedTensor parameter;
  std::int64_t begin = 0;  // in elements, from the start of the bucket
};

struct Bucket {
  std::vector<BucketEntry> entries;
  std::int64_t elements = 0;
  autograd::DType dtype = autograd::DType::fp32;
  autograd::Device device = autograd::Device::cpu;
};

// The limits are in bytes. Throws Error if one of them is 0.
std::vector<Bucket> plan_buckets(const std::vector<autograd::NamedTensor>& parameters,
                                 std::size_t limit, std::size_t first_limit);

inline constexpr double first_bucket_mb = 1;  // of 10^6 bytes

// Of a module's trained parameters, in buckets of `bucket_mb`, the first of at most
// first_bucket_mb.
std::vector<Bucket> plan_buckets(const autograd::Module& module, double bucket_mb);

// The place of one parameter, or of its gradient, in memory that is laid out as its bucket; of the
// parameter's shape.
autograd::Tensor view_in(const autograd::Tensor& flat, const BucketEntry& entry);

}  // namespace ringside::ddp
