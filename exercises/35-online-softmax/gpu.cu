// The student's kernel on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include "exercises/judge/gpu/measured.hpp"
#include "online_softmax.hpp"

namespace {
using namespace student::gpu;

struct CrossEntropy {
  Global<float> losses, z;
  Global<int> targets;
  std::int64_t rows, n;
  __device__ void operator()(DeviceThread& gpu) const {
    cross_entropy(gpu, losses, z, targets, rows, n);
  }
};
}  // namespace

int main() {
  Machine machine;
  struct Sides {
    std::int64_t rows, n;
    float spread;  // of the logits
  };
  for (const auto& [rows, n, spread] : {Sides{3, 70, 200}, Sides{1 << 12, 32000, 4}}) {
    NumbersOnGpu<float> losses("losses", rows), z("z", rows * n);
    z.fill(1, spread);
    std::vector<int> chosen;
    for (std::int64_t row = 0; row < rows; ++row)
      chosen.push_back(static_cast<int>(row * 7919 % n));
    const NumbersOnGpu<int> targets("targets", chosen);
    const CrossEntropy kernel{losses.global(), z.global(), targets.global(), rows, n};
    const Shape shape{528, 512, 64};
    run_once("cross_entropy", kernel, shape);
    const std::vector<float> seen_losses = losses.values(), seen = z.values();
    for (std::int64_t row = 0; row<rows; row += rows> 16 ? 17 : 1) {
      double total = 0;
      for (std::int64_t i = 0; i < n; ++i)
        total += std::exp(double{spread} * (number(1, row * n + i) - 1));
      const int target = chosen[static_cast<std::size_t>(row)];
      const double logit = double{spread} * number(1, row * n + target);
      expect_number("losses", row, seen_losses[static_cast<std::size_t>(row)],
                    std::log(total) + spread - logit, 1e-4);
      for (std::int64_t i = 0; i < n; ++i) {
        const double p = std::exp(double{spread} * (number(1, row * n + i) - 1)) / total;
        expect_number("z", row * n + i, seen[static_cast<std::size_t>(row * n + i)],
                      i == target ? p - 1 : p, 1e-4);
      }
    }
    if (rows > 1 << 10) machine.measure_bytes("cross_entropy", kernel, shape, 12.0 * rows * n);
  }
}
