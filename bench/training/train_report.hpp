// The figures of `ringside bench train` as a table, as JSON and as a picture.
#pragma once

#include <string>
#include <vector>

#include "autograd/kernels/profile.hpp"
#include "bench/training/step_options.hpp"
#include "training/matrix_libraries.hpp"

namespace ringside::cli {

// The figures for one number of threads. Times are medians over the steps.
struct TrainFigures {
  BenchRun run;
  int threads = 1;
  double tokens = 0;                    // of a step
  training::MatrixLibraries libraries;  // of the CPU
  std::vector<autograd::OpTime> ops;
  double step_seconds = 0;
  double gemm_seconds = 0;    // in matrix products during the step; 0: unknown
  double alone_seconds = 0;   // the step's matrix products alone, one after the other
  double flops = 0;           // of these products
  double tensor_bytes = 0;    // the peak in tensors
  double resident_bytes = 0;  // the process's peak during the first steps; 0: unknown
};

CommandResult result_of(const TrainFigures& figures);

// A picture with a bar for each op, forward then backward, the longest op first.
Json train_plot(const std::vector<TrainFigures>& all);

}  // namespace ringside::cli
