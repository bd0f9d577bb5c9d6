// The student's kernel on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include "exercises/judge/gpu/measured.hpp"
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
  Machine machine;
  struct Sides {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Sides{70, 33, 36}, Sides{4096, 4096, 4096}}) {
    NumbersOnGpu<float> a("a", m * k), b("b", n * k), c("c", m * n);
    a.fill(1);
    b.fill(2);
    const Product kernel{c.global(), a.global(), b.global(), m, n, k};
    const auto tiles = [](std::int64_t size) { return static_cast<int>((size + tile - 1) / tile); };
    const Shape shape{tiles(m) * tiles(n), 64, 2 * stage_floats};
    run_once("product", kernel, shape);
    const std::vector<float> seen = c.values();
    const std::int64_t step = m > 1000 ? 61 : 1;  // rows and columns to compare
    for (std::int64_t row = 0; row < m; row += step)
      for (std::int64_t column = 0; column < n; column += step) {
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i)
          sum += double{number(1, row * k + i)} * number(2, column * k + i);
        const std::int64_t at = row * n + column;
        expect_number("c", at, seen[static_cast<std::size_t>(at)], sum, 1e-4);
      }
    if (m > 1000) machine.measure_flops("product", kernel, shape, 2.0 * m * n * k);
  }
}
