#include "ddp/bucket_sizes/bucket_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace ringside::ddp {

double BucketModel::best_bucket_bytes(double total_bytes) const {
  return std::min(total_bytes, std::sqrt(total_bytes * bandwidth * overhead));
}

// Minimises the sum of ((o + b / w - t) / t)^2: a line through (b, t) with weights 1 / t^2.
BucketModel fit_bucket_model(const std::vector<std::pair<double, double>>& all_reduces) {
  double weights = 0, of_b = 0, of_t = 0, of_bb = 0, of_bt = 0;
  for (const auto& [bytes, seconds] : all_reduces) {
    require(
        bytes > 0 && seconds > 0,
        "an all-reduce of {} bytes in {} s is impossible: the bucket model needs measured times",
        bytes, seconds);
    const double weight = 1 / (seconds * seconds);
    weights += weight, of_b += weight * bytes, of_t += weight * seconds;
    of_bb += weight * bytes * bytes, of_bt += weight * bytes * seconds;
  }
  const double spread = weights * of_bb - of_b * of_b;
  require(spread > 1e-12 * weights * of_bb,
          "the bucket model needs all-reduces of at least two different sizes: it separates the "
          "cost of a call from the cost of a byte");
  double per_byte = (weights * of_bt - of_b * of_t) / spread;
  double overhead = (of_t - per_byte * of_b) / weights;
  if (overhead < 0) overhead = 0, per_byte = of_bt / of_bb;
  require(
      per_byte > 0,
      "larger all-reduces were not slower than small ones, so the bucket model finds no bandwidth: "
      "measure again on a less busy machine");
  return {overhead, 1 / per_byte};
}

}  // namespace ringside::ddp
