#include "autograd/kernels/shared/cross_entropy.hpp"

#include <doctest/doctest.h>

#include "autograd/kernels/shared/sums.hpp"
#include "tests/autograd/kernels/emulated/emulations.hpp"

using namespace ringside::autograd;
using namespace ringside::autograd::cuda;
using namespace ringside::tests;

namespace {

constexpr std::int32_t ignored = -100;

template <class S>
struct Problem {
  Problem(std::int64_t rows, std::int64_t vocabulary)
      : n(vocabulary), logits(numbers<S>(rows * vocabulary, 1)) {
    for (S& x : logits) x = S(30.0f * static_cast<float>(x));
    for (std::int64_t row = 0; row < rows; ++row)
      targets.push_back(row % 4 == 3 ? ignored
                                     : static_cast<std::int32_t>((row * 7 + 2) % vocabulary));
    losses.resize(targets.size()), log_sums.resize(targets.size());
  }
  std::int64_t rows() const { return static_cast<std::int64_t>(targets.size()); }

  // By the definition, with gradients times `weight`. The losses, logarithms and gradients of
  // ignored targets are 0.
  struct Expected {
    std::vector<double> losses, log_sums, gradient;
  };
  Expected expected(double weight) const {
    Expected e;
    for (std::size_t row = 0; row < targets.size(); ++row) {
      const auto at = [&](std::int64_t v) {
        return static_cast<double>(
            float(logits[row * static_cast<std::size_t>(n) + static_cast<std::size_t>(v)]));
      };
      const bool counts = targets[row] != ignored;
      double total = 0;
      for (std::int64_t v = 0; v < n; ++v) total += std::exp(at(v));
      e.log_sums.push_back(counts ? std::log(total) : 0);
      e.losses.push_back(counts ? std::log(total) - at(targets[row]) : 0);
      for (std::int64_t v = 0; v < n; ++v)
        e.gradient.push_back(counts ? (std::exp(at(v)) / total - (v == targets[row])) * weight : 0);
    }
    return e;
  }

  std::int64_t n;
  std::vector<S> logits;
  std::vector<std::int32_t> targets;
  std::vector<float> losses, log_sums;
};

template <class S, class G>
CrossEntropy<S, G> kernel(Problem<S>& problem, G* gradient, float weight,
                          bool row_in_shared = false) {
  return {.logits = problem.logits.data(),
          .targets = {problem.targets.data(), problem.n, ignored},
          .losses = problem.losses.data(),
          .log_sums = problem.log_sums.data(),
          .gradient = gradient,
          .rows = problem.rows(),
          .weight = weight,
          .packs = fits_packs(problem.n, problem.logits.data()) &&
                   (!gradient || fits_packs(problem.n, gradient)),
          .row_in_shared = row_in_shared};
}

template <class S, class G>
void check(std::int64_t rows, std::int64_t n, std::int64_t blocks, Emulation emulation) {
  Problem<S> problem(rows, n);
  const auto expected = problem.expected(0.25);
  std::vector<G> gradient(problem.logits.size());
  launch_emulated(kernel<S, G>(problem, nullptr, 0), blocks, emulation);
  CHECK(difference(problem.losses, expected.losses) < 1e-5);
  CHECK(difference(problem.log_sums, expected.log_sums) < 1e-5);
  for (const bool row_in_shared : {false, true}) {
    CAPTURE(row_in_shared);
    std::fill(problem.losses.begin(), problem.losses.end(), 77.0f);
    std::fill(gradient.begin(), gradient.end(), G(77.0f));
    launch_emulated(kernel<S, G>(problem, gradient.data(), 0.25f, row_in_shared), blocks,
                    emulation);
    CHECK(difference(problem.losses, expected.losses) < 1e-5);
    CHECK(difference(gradient, expected.gradient) < tolerance<G>);
  }
  // The same gradient, computed afterwards.
  const float dloss = 0.5f;
  std::vector<G> later(gradient.size());
  launch_emulated(CrossEntropyBackward<S, G>{.logits = problem.logits.data(),
                                             .targets = {problem.targets.data(), n, ignored},
                                             .log_sums = problem.log_sums.data(),
                                             .dloss = &dloss,
                                             .gradient = later.data(),
                                             .rows = rows,
                                             .factor = 0.5f,
                                             .packs = fits_packs(n, problem.logits.data()) &&
                                                      fits_packs(n, later.data())},
                  blocks, emulation);
  CHECK(difference(later, expected.gradient) < tolerance<G>);
  // The same gradient, written over the logits.
  if constexpr (std::is_same_v<S, G>) {
    const auto logits = problem.logits;
    for (const bool row_in_shared : {false, true}) {
      problem.logits = logits;
      launch_emulated(kernel<S, S>(problem, problem.logits.data(), 0.25f, row_in_shared), blocks,
                      emulation);
      CHECK(difference(problem.logits, expected.gradient) < tolerance<G>);
    }
  }
}

}  // namespace

TEST_CASE(
    "cuda cross_entropy: losses and gradients equal the definition with packs and without and "
    "over the logits") {
  for (const Emulation emulation : emulations)
    for (const std::int64_t n : {1, 5, 8, 12, 33, 136})
      for (const std::int64_t blocks : {2, 7}) {
        CAPTURE(n);
        CAPTURE(emulation.threads);
        check<float, float>(7, n, blocks, emulation);
        check<float, Bf16>(7, n, blocks, emulation);
        check<Bf16, Bf16>(7, n, blocks, emulation);
      }
}

TEST_CASE(
    "cuda cross_entropy: logits that would overflow and masked logits and a target outside of the "
    "vocabulary") {
  Problem<float> problem(3, 20);
  for (float& x : problem.logits) x *= 1000;
  for (std::size_t i = 40; i < 44; ++i)
    problem.logits[i] = -std::numeric_limits<float>::infinity();  // the first pack of the last row
  problem.targets = {2, 20, 7};
  for (const bool row_in_shared : {false, true}) {
    launch_emulated(kernel<float, float>(problem, nullptr, 0, row_in_shared), 3);
    CHECK(std::isfinite(problem.losses[0]));
    CHECK(std::isnan(problem.losses[1]));
    CHECK(std::isfinite(problem.losses[2]));
  }
}

TEST_CASE("cuda totals: losses are added up in fp64 by any number of threads") {
  for (const Emulation emulation :
       {Emulation{1, 1}, Emulation{2, 1}, Emulation{3, 1}, Emulation{7, 1}}) {
    const auto losses = numbers<float>(1000, 3);
    double expected = 0;
    for (const float loss : losses) expected += static_cast<double>(loss);
    double total = 0;
    float mean = 0;
    launch_emulated(Total<float, double>{losses.data(), 1000, &total}, 1, emulation);
    launch_emulated(Total<float, float>{losses.data(), 1000, &mean, 0.001}, 1, emulation);
    CHECK(std::abs(total - expected) < 1e-12);
    CHECK(mean == doctest::Approx(expected / 1000).epsilon(1e-6));
  }
}
