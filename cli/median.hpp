// The middle of several measurements: what a figure is here, unless it says otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ringside::cli {

// Of an even number the mean of the two in the middle; of none 0.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace ringside::cli
