// The bucket model and its fit.
#include "ddp/bucket_sizes/bucket_model.hpp"

#include <cmath>

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;
using namespace ringside::ddp;

TEST_CASE("the fit recovers the overhead and the bandwidth of synthetic all-reduces") {
  const BucketModel truth{.overhead = 150e-6, .bandwidth = 1e9};
  std::vector<std::pair<double, double>> calls;
  for (const double bytes : {2e3, 128e3, 1e6, 64e6})
    calls.emplace_back(bytes, truth.call_seconds(bytes));
  const BucketModel found = fit_bucket_model(calls);
  CHECK(found.overhead == doctest::Approx(150e-6));
  CHECK(found.bandwidth == doctest::Approx(1e9));
}

TEST_CASE("small calls count as much as large ones in the fit") {
  // The large calls are off by 10 %, which is more seconds than a small call takes in all.
  const BucketModel found = fit_bucket_model(
      {{2e3, 102e-6}, {4e3, 104e-6}, {8e3, 108e-6}, {64e6, 1.1 * 64e-3}, {32e6, 1.1 * 32e-3}});
  CHECK(found.overhead == doctest::Approx(100e-6).epsilon(0.05));
  CHECK(found.bandwidth == doctest::Approx(1e9 / 1.1).epsilon(0.05));
}

TEST_CASE("the overhead is never negative") {
  // The line through these two points is negative at 0 bytes.
  const BucketModel found = fit_bucket_model({{1e3, 0.5e-6}, {1e6, 1e-3}});
  CHECK(found.overhead == 0);
  CHECK(found.bandwidth > 0);
  CHECK(found.best_bucket_bytes(1e6) == 0);
}

TEST_CASE("the best bucket is at the zero of the model's derivative") {
  const BucketModel model{.overhead = 200e-6, .bandwidth = 125e6};
  const double s = 90e6, best = model.best_bucket_bytes(s), n = s / best;
  CHECK(best == doctest::Approx(std::sqrt(s * 125e6 * 200e-6)));
  CHECK(model.exposed_seconds(s, n) < model.exposed_seconds(s, n * 1.05));
  CHECK(model.exposed_seconds(s, n) < model.exposed_seconds(s, n / 1.05));
  // At the best size both terms are equal.
  CHECK(model.exposed_seconds(s, n) == doctest::Approx(2 * std::sqrt(s / 125e6 * 200e-6)));
  CHECK(BucketModel{10.0, 125e6}.best_bucket_bytes(s) == s);  // a bucket holds at most everything
}

TEST_CASE("the fit refuses figures that determine no model") {
  CHECK_THROWS_WITH_AS(fit_bucket_model({{1e6, 1e-3}, {1e6, 2e-3}}),
                       "the bucket model needs all-reduces of at least two different sizes: it "
                       "separates the cost of "
                       "a call from the cost of a byte",
                       Error);
  CHECK_THROWS_WITH_AS(
      fit_bucket_model({{1e3, 1e-3}, {1e6, 0}}),
      "an all-reduce of 1000000 bytes in 0 s is impossible: the bucket model needs measured times",
      Error);
}
