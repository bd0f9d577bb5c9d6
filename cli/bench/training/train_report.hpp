// The figures of `ringside bench train`, as a table for people, JSON for programs, and a drawing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/kernels/profile.hpp"
#include "cli/report/json_file.hpp"

namespace ringside::cli {

// One number of threads. Times are medians over the steps.
struct TrainFigures {
  std::string model, dtype = "fp32", device = "cpu";
  std::int64_t parameters = 0, batch = 0, sequence = 0;
  int threads = 1;
  std::vector<autograd::OpTime> ops;
  double step_seconds = 0;
  double gemm_seconds = 0;   // of the step; 0: not known
  double alone_seconds = 0;  // the step's products one after the other
  double flops = 0;          // of these
  double tensor_bytes = 0;   // the most that tensors held at once
  double resident_bytes =
      0;  // the most that the process had in memory during the first steps; 0: not known

  double tokens_per_second() const { return static_cast<double>(batch * sequence) / step_seconds; }
  double ratio() const { return step_seconds / alone_seconds; }
};

std::string train_table(const TrainFigures& figures);
Json to_json(const std::vector<TrainFigures>& all);

// A bar for each op, the longest first: forward, then backward. Readable on light and dark.
std::string train_plot(const std::vector<TrainFigures>& all);

}  // namespace ringside::cli
