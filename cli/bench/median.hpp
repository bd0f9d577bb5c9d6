// What several measurements come to: the median is what a figure is here, unless it says otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace ringside::cli {

// The value that this share of the others, 0 to 1, are below; between two of them where it falls
// there. Of none 0.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place),
             above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace ringside::cli
