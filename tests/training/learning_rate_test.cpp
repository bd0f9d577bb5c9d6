#include "training/learning_rate.hpp"

#include <doctest/doctest.h>

using namespace ringside::training;

using doctest::Approx;

TEST_CASE("the learning rate rises linearly, then falls as half a cosine to its floor") {
  const LearningRate rate{.peak = 1.0, .floor = 0.1, .warmup = 10, .steps = 110};
  CHECK(rate.at(0) == Approx(0.1));
  CHECK(rate.at(4) == Approx(0.5));
  CHECK(rate.at(9) == Approx(1.0));
  CHECK(rate.at(34) == Approx(0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5))));  // a quarter of the way
  CHECK(rate.at(59) == Approx(0.55));                                    // half way
  CHECK(rate.at(109) == Approx(0.1));
  CHECK(rate.at(1000) == Approx(0.1));
  for (int step = 10; step < 109; ++step) CHECK(rate.at(step) < rate.at(step - 1));
}

TEST_CASE("short runs have valid learning rates") {
  CHECK(LearningRate{.peak = 1, .floor = 0.1, .warmup = 0, .steps = 1}.at(0) == Approx(0.1));
  CHECK(LearningRate{.peak = 1, .floor = 0.1, .warmup = 4, .steps = 2}.at(1) ==
        Approx(0.5));  // ends during the warm-up
  CHECK(LearningRate{.peak = 1, .floor = 1, .warmup = 0, .steps = 9}.at(3) ==
        Approx(1));  // constant
}
