// The bucket model, its fit, and the charts and pages that show it.
#include "cli/report/bucket_model.hpp"

#include <cmath>

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;
using namespace ringside::cli;

TEST_CASE("the fit finds the overhead and the bandwidth that all-reduces were made with") {
  const BucketModel truth{.overhead = 150e-6, .bandwidth = 1e9};
  std::vector<std::pair<double, double>> calls;
  for (const double bytes : {2e3, 128e3, 1e6, 64e6})
    calls.emplace_back(bytes, truth.call_seconds(bytes));
  const BucketModel found = fit_bucket_model(calls);
  CHECK(found.overhead == doctest::Approx(150e-6));
  CHECK(found.bandwidth == doctest::Approx(1e9));
}

TEST_CASE("small calls weigh as much as large ones in the fit") {
  // The large ones are off by a tenth, which is far more in seconds than all of a small one.
  const BucketModel found = fit_bucket_model(
      {{2e3, 102e-6}, {4e3, 104e-6}, {8e3, 108e-6}, {64e6, 1.1 * 64e-3}, {32e6, 1.1 * 32e-3}});
  CHECK(found.overhead == doctest::Approx(100e-6).epsilon(0.05));
  CHECK(found.bandwidth == doctest::Approx(1e9 / 1.1).epsilon(0.05));
}

TEST_CASE("calls that cost nothing but their bytes have no overhead") {
  const BucketModel found =
      fit_bucket_model({{1e3, 0.5e-6}, {1e6, 1e-3}});  // the line through them is below 0 at 0
  CHECK(found.overhead == 0);
  CHECK(found.bandwidth > 0);
  CHECK(found.best_bucket_bytes(1e6) == 0);
}

TEST_CASE("the best bucket is where the model's derivative is zero") {
  const BucketModel model{.overhead = 200e-6, .bandwidth = 125e6};
  const double s = 90e6, best = model.best_bucket_bytes(s), n = s / best;
  CHECK(best == doctest::Approx(std::sqrt(s * 125e6 * 200e-6)));
  CHECK(model.exposed_seconds(s, n) < model.exposed_seconds(s, n * 1.05));
  CHECK(model.exposed_seconds(s, n) < model.exposed_seconds(s, n / 1.05));
  CHECK(model.exposed_seconds(s, n) ==
        doctest::Approx(2 * std::sqrt(s / 125e6 * 200e-6)));  // both terms are equal there
  CHECK(BucketModel{10.0, 125e6}.best_bucket_bytes(s) == s);  // a bucket holds no more than all
}

TEST_CASE("what cannot be fitted is told") {
  CHECK_THROWS_WITH_AS(
      fit_bucket_model({{1e6, 1e-3}, {1e6, 2e-3}}),
      "two different sizes are needed to tell what a call costs from what a byte costs", Error);
  CHECK_THROWS_WITH_AS(
      fit_bucket_model({{1e3, 1e-3}, {1e6, 0}}),
      "an all-reduce of 1000000 bytes in 0 s cannot be: the model is fitted to measured ones",
      Error);
}
