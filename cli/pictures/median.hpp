// The median and other quantiles of several measurements. A figure is a median unless it says
// otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
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

inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace ringside::cli
