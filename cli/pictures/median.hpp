// The median and other quantiles of several measurements. A figure is a median unless it says
// otherwise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace ringside::cli {

// The value below which the fraction `share` (0 to 1) of the values lies, interpolated between two
// values. 0 if there are no values.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double position = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position),
             above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

// The standard deviation as a fraction of the mean. 0 if there are no values.
inline double coefficient_of_variation(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0), mean = sum / count;
  if (!(sum > 0)) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / count) / mean;
}

inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace ringside::cli
