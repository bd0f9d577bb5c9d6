// What every bucket size of a model is predicted to expose, by following the buckets in time
// (ddp/bucket_sizes/bucket_timeline.hpp) from the moments when a backward completes the gradients.
// `ringside bench ddp` chooses by it the sizes that it measures, and draws it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/nn/module.hpp"
#include "ddp/bucket_sizes/bucket_model.hpp"
#include "ddp/bucket_sizes/bucket_timeline.hpp"

namespace ringside::cli {

// When the gradients of a model are complete, without communication.
struct BackwardTimes {
  // Of each trained parameter by its name: seconds since the begin of backward.
  std::map<std::string, double> ready;
  double seconds = 0;  // of backward
};

// A bucket size, and the buckets that `module` has with it.
struct BucketSize {
  double mb = 0;
  std::vector<ddp::ReadyBucket> buckets;

  double mean_bytes() const;  // of a bucket
};

// For sizes of 1, 1.5, 2, 3, 5 and 7 times a power of ten, from a hundredth of the gradients to all
// of them. Those that divide the gradients like a smaller one are left out.
std::vector<BucketSize> bucket_sizes(const autograd::Module& module, const BackwardTimes& times);

// What every bucket size is predicted to expose over one group of ranks.
struct BucketForecast {
  std::vector<BucketSize> sizes;                       // at least one, in ascending order
  double backward = 0;                                 // seconds, without communication
  std::vector<std::pair<double, double>> all_reduces;  // measured: bytes, seconds
  ddp::BucketModel model = ddp::fit_bucket_model(all_reduces);

  // Seconds of communication, by following the buckets in time.
  double exposed(const BucketSize& size) const {
    return ddp::exposed_seconds(model, size.buckets, backward);
  }
  // The size with the least exposed communication; of two that are equal, the larger.
  const BucketSize& best() const;
  // The one that divides the gradients like a limit of `mb`.
  const BucketSize& size_of(double mb) const;
  // `wanted` sizes in MB, or all if there are fewer: the best of them, and others from the smallest
  // to the largest.
  std::vector<double> sizes_to_measure(std::size_t wanted) const;
};

}  // namespace ringside::cli
