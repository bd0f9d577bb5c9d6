// The student's kernels on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include "coalesced.hpp"

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
  constexpr std::int64_t n = 1 << 26, side = 1 << 13;
  const Global<float> from = numbers_on_gpu(n, 1.0f), to = numbers_on_gpu(n, 0.0f, true);
  measure("copy", 8.0 * n, Copy{to, from}, 1056, 256);
  measure("transpose", 8.0 * side * side, Transpose{to, from, side, side}, 1056, 256, 1056);
}
