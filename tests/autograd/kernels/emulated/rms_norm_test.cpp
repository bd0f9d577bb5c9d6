#include "autograd/kernels/shared/rms_norm.hpp"

#include <doctest/doctest.h>

#include "tests/autograd/kernels/emulated/emulations.hpp"

using namespace ringside::autograd;
using namespace ringside::autograd::cuda;
using namespace ringside::tests;

namespace {

constexpr double eps = 1e-5;

template <class Kernel>
void check_forward(std::int64_t rows, std::int64_t n, bool with_residual, std::int64_t blocks,
                   Emulation emulation) {
  using S = typename Kernel::Element;
  const auto x = numbers<S>(rows * n, 1), residual = numbers<S>(rows * n, 2), w = numbers<S>(n, 3);
  std::vector<S> sum(x.size()), y(x.size());
  std::vector<float> r(static_cast<std::size_t>(rows));
  launch_emulated(Kernel{.x = x.data(),
                         .residual = with_residual ? residual.data() : nullptr,
                         .w = w.data(),
                         .sum = sum.data(),
                         .y = y.data(),
                         .r = r.data(),
                         .rows = rows,
                         .n = n,
                         .eps = eps,
                         .packs = fits_packs(n, x.data(), y.data())},
                  blocks, emulation);
  std::vector<double> expected_y, expected_r;
  std::vector<S> expected_sum(x.size());
  for (std::size_t row = 0; row < r.size(); ++row) {
    const std::size_t begin = row * w.size();
    double squares = 0;
    const auto normed = [&](std::size_t i) {
      if (with_residual)
        expected_sum[begin + i] = S(float(x[begin + i]) + float(residual[begin + i]));
      return static_cast<double>(float(with_residual ? expected_sum[begin + i] : x[begin + i]));
    };
    for (std::size_t i = 0; i < w.size(); ++i) squares += normed(i) * normed(i);
    expected_r.push_back(1 / std::sqrt(squares / static_cast<double>(n) + eps));
    for (std::size_t i = 0; i < w.size(); ++i)
      expected_y.push_back(normed(i) * expected_r.back() * static_cast<double>(float(w[i])));
  }
  CHECK(difference(y, expected_y) < tolerance<S>);
  CHECK(difference(r, expected_r) < 1e-5);
  CHECK(difference(sum, expected_sum) == 0);
}

template <class Kernel>
void check_backward(std::int64_t rows, std::int64_t n, std::int64_t blocks, Emulation emulation) {
  using S = typename Kernel::Element;
  const auto dy = numbers<S>(rows * n, 1), x = numbers<S>(rows * n, 2), w = numbers<S>(n, 3);
  std::vector<float> r, partials(static_cast<std::size_t>(blocks * n), 77.0f);
  std::vector<double> expected_dx, expected_dw(w.size());
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const auto at = [&](const std::vector<S>& all, std::size_t i) {
      return static_cast<double>(float(all[i]));
    };
    const std::size_t begin = row * w.size();
    double squares = 0, dot = 0;
    for (std::size_t i = 0; i < w.size(); ++i) squares += at(x, begin + i) * at(x, begin + i);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (std::size_t i = 0; i < w.size(); ++i)
      dot += at(dy, begin + i) * at(w, i) * at(x, begin + i);
    for (std::size_t i = 0; i < w.size(); ++i) {
      expected_dw[i] += at(dy, begin + i) * at(x, begin + i) * factor;
      expected_dx.push_back(at(dy, begin + i) * at(w, i) * factor -
                            at(x, begin + i) * dot * std::pow(factor, 3) / static_cast<double>(n));
    }
    r.push_back(static_cast<float>(factor));
  }
  std::vector<S> dx(x.size()), dw(w.size());
  const bool packs = fits_packs(n, dy.data(), x.data(), dx.data(), w.data());
  for (std::int64_t first = 0; first < n; first += Kernel::columns_of(packs)) {
    const Kernel kernel{.dy = dy.data(),
                        .x = x.data(),
                        .w = w.data(),
                        .r = r.data(),
                        .dx = dx.data(),
                        .partials = partials.data(),
                        .rows = rows,
                        .n = n,
                        .first = first,
                        .packs = packs};
    launch_emulated(kernel, blocks, emulation);
    launch_emulated(ColumnSums<S>{.partials = partials.data(),
                                  .total = dw.data() + first,
                                  .lines = blocks,
                                  .n = kernel.width()},
                    2, emulation);
  }
  CHECK(difference(dx, expected_dx) < tolerance<S>);
  CHECK(difference(dw, expected_dw) < tolerance<S>);
}

}  // namespace

TEST_CASE("cuda rms_norm: rows with packs and without and more and fewer rows than blocks") {
  for (const Emulation emulation : emulations)
    for (const std::int64_t n : {3, 7, 8, 40, 515})
      for (const std::int64_t blocks : {1, 3}) {
        CAPTURE(n);
        CAPTURE(emulation.threads);
        for (const bool with_residual : {false, true}) {
          check_forward<RmsNorm<float, 32>>(2, n, with_residual, blocks, emulation);
          check_forward<RmsNorm<Bf16, 32>>(5, n, with_residual, blocks, emulation);
        }
        check_backward<RmsNormBackward<float, 32>>(2, n, blocks, emulation);
        check_backward<RmsNormBackward<Bf16, 32>>(5, n, blocks, emulation);
      }
}

TEST_CASE("cuda rms_norm: long rows, for which a block takes one at a time") {
  for (const Emulation emulation : emulations)
    for (const std::int64_t n : {1025, 2560})
      for (const bool with_residual : {false, true}) {
        CAPTURE(n);
        check_forward<RmsNorm<float, 256>>(3, n, with_residual, 2, emulation);
        check_forward<RmsNorm<Bf16, 256>>(3, n, with_residual, 2, emulation);
      }
}

TEST_CASE("cuda rms_norm: gradients of rows that take several launches") {
  for (const Emulation emulation : emulations)
    for (const std::int64_t n : {1024, 1025, 2560}) {
      CAPTURE(n);
      check_backward<RmsNormBackward<float, 32>>(7, n, 2, emulation);
      check_backward<RmsNormBackward<Bf16, 32>>(7, n, 2, emulation);
      check_backward<RmsNormBackward<Bf16, 256>>(7, n, 2, emulation);
    }
  check_backward<RmsNormBackward<float, 256>>(3, 8192 + 40, 2, {3, 2});
}

TEST_CASE("cuda column sums: a tree over lines, for every number of threads") {
  constexpr std::int64_t n = 70;
  for (const std::int64_t lines : {1, 2, 9, 40})
    for (const int threads : {1, 3, 40, 64, 96, 160}) {
      CAPTURE(lines);
      CAPTURE(threads);
      const auto partials = numbers<float>(lines * n, 5);
      std::vector<float> total(n);
      std::vector<double> expected(n);
      for (std::int64_t i = 0; i < lines * n; ++i)
        expected[static_cast<std::size_t>(i % n)] +=
            static_cast<double>(partials[static_cast<std::size_t>(i)]);
      launch_emulated(
          ColumnSums<float>{
              .partials = partials.data(), .total = total.data(), .lines = lines, .n = n},
          2, {threads, 1});
      CHECK(difference(total, expected) < 1e-6);
    }
}
