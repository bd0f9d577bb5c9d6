// The student's kernels on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include "coalesced.hpp"
#include "exercises/judge/gpu/measured.hpp"

namespace {
using namespace student::gpu;

struct Copy {
  Global<float> to, from;
  __device__ void operator()(DeviceThread& gpu) const { copy(gpu, to, from); }
};
struct Transpose {
  Global<float> to, from;
  std::int64_t rows, columns;
  __device__ void operator()(DeviceThread& gpu) const { transpose(gpu, to, from, rows, columns); }
};
}  // namespace

int main() {
  Machine machine;
  for (const std::int64_t n : {1027, 1 << 26}) {
    NumbersOnGpu<float> from("from", n), to("to", n);
    from.fill(1);
    const Copy kernel{to.global(), from.global()};
    const Shape shape{1056, 256};
    run_once("copy", kernel, shape);
    to.expect([](std::int64_t i) { return number(1, i); }, 0);
    if (n > 1 << 20) machine.measure_bytes("copy", kernel, shape, 8.0 * n);
  }
  struct Sides {
    std::int64_t rows, columns;
  };
  for (const auto& [rows, columns] : {Sides{33, 70}, Sides{1 << 13, 1 << 13}}) {
    NumbersOnGpu<float> from("from", rows * columns), to("to", rows * columns);
    from.fill(2);
    const Transpose kernel{to.global(), from.global(), rows, columns};
    const Shape shape{1056, 256, 1056};
    run_once("transpose", kernel, shape);
    to.expect([=](std::int64_t i) { return number(2, i % rows * columns + i / rows); }, 0);
    if (rows > 1 << 10) machine.measure_bytes("transpose", kernel, shape, 8.0 * rows * columns);
  }
}
