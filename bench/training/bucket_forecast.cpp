#include "bench/training/bucket_forecast.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "ddp/buckets.hpp"
#include "ddp/replicate.hpp"

namespace ringside::cli {

double BucketSize::mean_bytes() const {
  double sum = 0;
  for (const ddp::ReadyBucket& bucket : buckets) sum += bucket.bytes;
  return sum / static_cast<double>(buckets.size());
}

std::vector<BucketSize> bucket_sizes(const autograd::Module& module, const BackwardTimes& times) {
  double gradient_mb = 0;
  for (const auto& [name, tensor] : ddp::trained_parameters(module))
    gradient_mb +=
        static_cast<double>(tensor.elements()) * static_cast<double>(size_of(tensor.dtype())) / 1e6;
  std::vector<BucketSize> sizes;
  for (double power = std::pow(10, std::floor(std::log10(gradient_mb / 100)));; power *= 10)
    for (const double factor : {1.0, 1.5, 2.0, 3.0, 5.0, 7.0}) {
      const double mb = factor * power;
      BucketSize size{mb, {}};
      for (const ddp::Bucket& bucket : ddp::plan_buckets(module, mb)) {
        double last = 0;
        for (const ddp::BucketEntry& entry : bucket.entries)
          last = std::max(last, times.ready.at(entry.parameter.name));
        size.buckets.push_back(
            {static_cast<double>(bucket.elements) * static_cast<double>(size_of(bucket.dtype)),
             last});
      }
      if (sizes.empty() || size.buckets.size() < sizes.back().buckets.size())
        sizes.push_back(std::move(size));
      if (mb >= gradient_mb) return sizes;
    }
}

const BucketSize& BucketForecast::best() const {
  return *std::min_element(sizes.rbegin(), sizes.rend(), [this](const auto& a, const auto& b) {
    return exposed(a) < exposed(b);
  });
}

const BucketSize& BucketForecast::size_of(double mb) const {
  const auto larger = std::find_if(sizes.begin() + 1, sizes.end(),
                                   [mb](const BucketSize& size) { return size.mb > mb; });
  return *(larger - 1);
}

std::vector<double> BucketForecast::sizes_to_measure(std::size_t wanted) const {
  std::set<double> chosen{best().mb};
  for (std::size_t parts = 1; chosen.size() < std::min(wanted, sizes.size()); ++parts)
    for (std::size_t i = 0; i <= parts && chosen.size() < wanted; ++i)
      chosen.insert(sizes[i * (sizes.size() - 1) / parts].mb);
  return {chosen.begin(), chosen.end()};
}

}  // namespace ringside::cli
