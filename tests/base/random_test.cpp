#include "base/random.hpp"

#include <doctest/doctest.h>

using namespace ringside;

TEST_CASE("a number depends on the seed and the stream and the counter") {
  const auto bits = random_bits(1, 2, 3);
  CHECK(bits == random_bits(1, 2, 3));
  CHECK(bits != random_bits(0, 2, 3));
  CHECK(bits != random_bits(1, 0, 3));
  CHECK(bits != random_bits(1, 2, 0));
  CHECK(random_bits(1, 2, 3) != random_bits(1, 3, 2));
}

TEST_CASE("uniform and normal numbers have the right mean and variance") {
  double uniform_sum = 0, normal_sum = 0, normal_squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double u = random_uniform(7, 0, i), z = random_normal(7, 1, i);
    CHECK((u >= 0 && u < 1));
    uniform_sum += u, normal_sum += z, normal_squares += z * z;
  }
  CHECK(uniform_sum / n == doctest::Approx(0.5).epsilon(0.01));
  CHECK(std::abs(normal_sum / n) < 0.02);
  CHECK(normal_squares / n == doctest::Approx(1).epsilon(0.02));
}
