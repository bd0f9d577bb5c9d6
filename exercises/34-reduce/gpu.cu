// The student's kernels on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include "reduce.hpp"

namespace {
using namespace student::gpu;

struct RowSums {
  Global<float> sums, x;
  std::int64_t rows, n;
  __device__ void operator()(DeviceThread& gpu) const { row_sums(gpu, sums, x, rows, n); }
};
}  // namespace

int main() {
  constexpr std::int64_t rows = 1 << 14, n = 1 << 13;
  const Global<float> x = numbers_on_gpu(rows * n, 1.0f);
  const Global<float> sums = numbers_on_gpu(rows, 0.0f, true);
  measure("row_sums, 256 threads", 4.0 * rows * n, RowSums{sums, x, rows, n}, 1056, 256, 64);
  measure("row_sums, 1024 threads", 4.0 * rows * n, RowSums{sums, x, rows, n}, 264, 1024, 64);
}
