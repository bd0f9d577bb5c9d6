// The student's kernels on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include "exercises/judge/gpu/measured.hpp"
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
  Machine machine;
  struct Sides {
    std::int64_t rows, n;
  };
  for (const auto& [rows, n] : {Sides{5, 1000}, Sides{1 << 14, 1 << 13}}) {
    NumbersOnGpu<float> x("x", rows * n), sums("sums", rows);
    x.fill(1);
    std::vector<double> expected;
    for (std::int64_t row = 0; row < rows; ++row) {
      expected.push_back(0);
      for (std::int64_t i = 0; i < n; ++i) expected.back() += number(1, row * n + i);
    }
    const RowSums kernel{sums.global(), x.global(), rows, n};
    for (const Shape& shape : {Shape{1056, 256, 64}, Shape{264, 1024, 64}}) {
      run_once("row_sums", kernel, shape);
      sums.expect([&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; }, 1e-4);
      const char* const name =
          shape.threads == 256 ? "row_sums, 256 threads" : "row_sums, 1024 threads";
      if (rows > 1 << 10) machine.measure_bytes(name, kernel, shape, 4.0 * rows * n);
    }
  }
}
