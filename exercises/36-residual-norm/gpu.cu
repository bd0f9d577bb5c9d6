// The student's kernels on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include "exercises/judge/gpu/measured.hpp"
#include "residual_norm.hpp"

namespace {
using namespace student::gpu;

struct Forward {
  Global<Bf16> y, h;
  Global<float> rstds;
  Global<Bf16> x, r;
  Global<float> w;
  std::int64_t rows, n;
  __device__ void operator()(DeviceThread& gpu) const {
    residual_norm(gpu, y, h, rstds, x, r, w, rows, n, 1e-5f);
  }
};
struct Backward {
  Global<Bf16> dh;
  Global<float> parts;
  Global<Bf16> dy, g, h;
  Global<float> rstds, w;
  std::int64_t rows, n;
  __device__ void operator()(DeviceThread& gpu) const {
    residual_norm_backward(gpu, dh, parts, dy, g, h, rstds, w, rows, n);
  }
};
}  // namespace

// Of bf16 numbers.
float rounded(std::uint32_t which, std::int64_t i) {
  return static_cast<float>(Bf16(number(which, i)));
}

int main() {
  Machine machine;
  struct Sides {
    std::int64_t rows, n;
    Shape shape;
  };
  for (const auto& [rows, n, shape] : {Sides{5, 100, {3, 64}}, Sides{1 << 15, 4096, {528, 512}}}) {
    const std::int64_t all = rows * n;
    NumbersOnGpu<Bf16> x("x", all), r("r", all), y("y", all), h("h", all);
    NumbersOnGpu<Bf16> dy("dy", all), g("g", all), dh("dh", all);
    NumbersOnGpu<float> w("w", n), rstds("rstds", rows), parts("parts", shape.blocks * n);
    x.fill(1);
    r.fill(2);
    w.fill(3);
    dy.fill(4);
    g.fill(5);
    const Forward forward{y.global(), h.global(), rstds.global(), x.global(),
                          r.global(), w.global(), rows,           n};
    const Backward backward{dh.global(),    parts.global(), dy.global(), g.global(), h.global(),
                            rstds.global(), w.global(),     rows,        n};
    run_once("residual_norm", forward, shape);
    run_once("residual_norm_backward", backward, shape);

    constexpr double of_bf16 = 0x1p-7;
    const std::vector<Bf16> ys = y.values(), hs = h.values(), dhs = dh.values();
    const std::vector<float> all_rstds = rstds.values(), dw = parts.values();
    const auto sum = [n = n](std::int64_t row, std::int64_t i) {
      return static_cast<float>(Bf16(rounded(1, row * n + i) + rounded(2, row * n + i)));
    };
    for (std::int64_t row = 0; row<rows; row += rows> 16 ? 61 : 1) {
      double squares = 0, dot = 0;
      for (std::int64_t i = 0; i < n; ++i) squares += double{sum(row, i)} * sum(row, i);
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
      expect_number("rstds", row, all_rstds[static_cast<std::size_t>(row)], rstd, 1e-4);
      for (std::int64_t i = 0; i < n; ++i)
        dot += double{number(3, i)} * rounded(4, row * n + i) * sum(row, i) * rstd;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t at = row * n + i;
        const double u = sum(row, i) * rstd, wdy = number(3, i) * rounded(4, at);
        const auto expect = [&](const char* name, const std::vector<Bf16>& seen, double expected) {
          expect_number(name, at, static_cast<float>(seen[static_cast<std::size_t>(at)]), expected,
                        of_bf16);
        };
        expect("h", hs, sum(row, i));
        expect("y", ys, u * number(3, i));
        expect("dh", dhs, rounded(5, at) + rstd * (wdy - u * dot / static_cast<double>(n)));
      }
    }
    for (std::int64_t i = 0; i<n; i += n> 1000 ? 61 : 1) {
      double seen = 0, expected = 0;
      for (std::int64_t block = 0; block < shape.blocks; ++block)
        seen += dw[static_cast<std::size_t>(block * n + i)];
      for (std::int64_t row = 0; row < rows; ++row)
        expected += double{rounded(4, row * n + i)} * sum(row, i) *
                    all_rstds[static_cast<std::size_t>(row)];
      expect_number("the sum of parts over blocks", i, seen, expected, 1e-3);
    }
    if (rows > 1 << 10) {
      machine.measure_bytes("residual_norm", forward, shape, 8.0 * all);
      machine.measure_bytes("residual_norm_backward", backward, shape, 8.0 * all);
    }
  }
}
