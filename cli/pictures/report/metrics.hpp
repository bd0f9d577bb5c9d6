// The rows of `ringside train --metrics`, read back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ringside::cli {

struct Metrics {
  struct Step {
    std::int64_t step = 0;
    double bits_per_byte = 0, seconds = 0, waiting_seconds = 0, tokens_per_second = 0;
  };
  std::string name;  // of the file
  std::vector<Step> steps;
  std::vector<std::pair<std::int64_t, double>> validations;  // (step, bits per byte)

  const Step* at(std::int64_t step) const;  // null if the run did not take it
};

// Throws Error that names the file, and the line if one cannot be read.
Metrics read_metrics(const std::string& path);

}  // namespace ringside::cli
