// Which gradients share a call.
//
// Parameters enter buckets in REVERSE order of registration, because backward completes the last
// layers first. A parameter joins the last bucket if that stays within the limit; otherwise it
// opens the next one:
//
//     registered    embed   layer 1   layer 2   head            limit: two layers
//     buckets       0: head | 1: layer 2, layer 1 | 2: embed
//
// The first bucket has a smaller limit, so that communication starts early in backward. A parameter
// larger than the limit gets its own bucket, and so does one that must stand alone. A bucket has
// one dtype and one device. The plan depends only on names, shapes, dtypes and devices, so all
// ranks make the same one.
//
// Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
// VLDB 2020, section 3.2.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/nn/module.hpp"

namespace ringside::ddp {

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

// The names of parameters that share no bucket. Ranks whose parameters of these names have other
// shapes still have the same layout of all other buckets.
struct Alone {
  std::vector<std::string> names;
};

// Limits are in bytes. Throws Error if one of them is 0.
std::vector<Bucket> plan_buckets(const std::vector<autograd::NamedTensor>& parameters,
                                 std::size_t limit, std::size_t first_limit,
                                 const Alone& alone = {});

inline constexpr double first_bucket_mb = 1;  // 1 MB is 10^6 bytes

// Plans buckets of at most `bucket_mb` MB, the first of at most first_bucket_mb; of a module, for
// its trained parameters.
std::vector<Bucket> plan_buckets_in_mb(const std::vector<autograd::NamedTensor>& parameters,
                                       double bucket_mb, const Alone& alone = {});
std::vector<Bucket> plan_buckets(const autograd::Module& module, double bucket_mb,
                                 const Alone& alone = {});

// A view, of the parameter's shape, of one entry in `flat`: memory with the layout of its bucket.
autograd::Tensor view_in(const autograd::Tensor& flat, const BucketEntry& entry);

}  // namespace ringside::ddp
