// The costs of a machine from measured calls.
#include "bench/measured_costs.hpp"

#include <doctest/doctest.h>

using namespace ringside::cli;
using ringside::collectives::MachineCosts;

TEST_CASE("costs are computed from the calls that they dominate") {
  const auto about = [](double value) { return doctest::Approx(value).scale(1e-15); };
  // A synthetic machine of the cost model: two cores, six ranks.
  const double alpha = 20e-6, turn = 8e-6, overhead = 5e-6, beta = 2e-10, copy = 1e-10;
  CalibrationTimes times;
  times.ranks = 6;
  times.pair_few = alpha;
  times.ring_few = 5 * (alpha + 2 * turn);
  times.direct_few = 30 * 2 * overhead / 2;
  for (std::size_t i = 0; i < 3; ++i) {
    const double bytes = static_cast<double>(MachineCosts::lengths[i]);
    times.pair_many[i] = alpha + bytes / 2 * beta;
    times.ring_many[i] = times.ring_few + 5 * bytes * 2 * copy / 2;
  }
  const auto costs = solve_costs(times, 2);
  CHECK(costs.common.alpha == about(alpha));
  CHECK(costs.common.turn == about(turn));
  CHECK(costs.common.overhead == about(overhead));
  CHECK(costs.common.cores == 2);
  for (const auto& per_byte : costs.per_byte) {
    CHECK(per_byte.beta == about(beta));
    CHECK(per_byte.copy == about(copy));
  }
  // Contradicting times of a busy machine: no cost becomes negative.
  times.pair_few = 1;
  const auto nonsense = solve_costs(times, 2);
  CHECK(nonsense.common.turn == 0);
  CHECK(nonsense.common.overhead > 0);
  for (const auto& per_byte : nonsense.per_byte) CHECK(per_byte.beta == 0);
}
