// The student's kernel on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include "tiled_product.hpp"

namespace {
using namespace student::gpu;

struct Product {
  Global<float> c, a, b;
  std::int64_t m, n, k;
  __device__ void operator()(DeviceThread& gpu) const { product(gpu, c, a, b, m, n, k); }
};
}  // namespace

int main() {
  constexpr std::int64_t side = 4096;
  const Global<float> a = numbers_on_gpu(side * side, 1.0f), b = numbers_on_gpu(side * side, 1.0f);
  const Global<float> c = numbers_on_gpu(side * side, 0.0f, true);
  // What the tiles read: a GB/s here is 8 GFLOP/s.
  measure("product, as tiles read", 2.0 * side * side * side / 8,
          Product{c, a, b, side, side, side}, side / tile * side / tile, 64, 2 * stage_floats);
}
