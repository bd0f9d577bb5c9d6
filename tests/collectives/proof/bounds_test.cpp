// Every algorithm beside the lower bounds of its collective.
#include "collectives/proof/bounds.hpp"

#include <doctest/doctest.h>

using namespace ringside::collectives;

namespace {

Figures figures(Collective collective, std::string_view name, int size) {
  return figures_of(make_schedules(find_algorithm(collective, name), size));
}

}  // namespace

TEST_CASE("no algorithm is below a lower bound, with any number of ranks") {
  for (const Algorithm& algorithm : all_algorithms())
    for (int size = 1; size <= 33; ++size) {
      CAPTURE(algorithm.title());
      CAPTURE(size);
      const Figures seen = figures_of(make_schedules(algorithm, size)),
                    least = lower_bounds(algorithm.collective, size);
      CHECK(seen.steps >= least.steps);
      CHECK(seen.bytes >= least.bytes - 1e-9);
      CHECK(seen.added >= least.added - 1e-9);
    }
}

TEST_CASE("the ring moves the fewest bytes, recursive doubling takes the fewest steps") {
  using enum Collective;
  const Figures least = lower_bounds(all_reduce, 16), ring = figures(all_reduce, "ring", 16),
                doubling = figures(all_reduce, "recursive_doubling", 16),
                tree = figures(all_reduce, "double_tree", 16);
  CHECK(beside_bound(ring.bytes, least.bytes) == "optimal");
  CHECK(beside_bound(ring.added, least.added) == "optimal");
  CHECK(beside_bound(ring.steps, least.steps) == "7.5x");
  CHECK(beside_bound(doubling.steps, least.steps) == "optimal");
  CHECK(beside_bound(doubling.bytes, least.bytes) == "2.1x");
  CHECK(beside_bound(tree.bytes, least.bytes) == "within 2x");
  CHECK(tree.bytes == 2);
  CHECK(tree.steps == 14);
  for (const char* name : {"pat", "bruck", "doubling"}) {
    const Figures gather = figures(all_gather, name, 16), bound = lower_bounds(all_gather, 16);
    CHECK(gather.steps == bound.steps);
    CHECK(gather.bytes == doctest::Approx(bound.bytes));
  }
  CHECK(figures(all_gather, "pat", 13).steps == lower_bounds(all_gather, 13).steps);
  CHECK(figures(all_gather, "doubling", 13).steps == 5);
  const Figures bruck = figures(all_to_all, "bruck", 16);
  CHECK(bruck.steps == lower_bounds(all_to_all, 16).steps);
  CHECK(bruck.bytes == doctest::Approx(2));  // half of the buffer in each of 4 steps
}

TEST_CASE("an algorithm dominates another if it is no worse anywhere and better somewhere") {
  const Figures fast{.steps = 4, .bytes = 4, .added = 4},
      small{.steps = 30, .bytes = 2, .added = 1}, naive{.steps = 30, .bytes = 15, .added = 15};
  CHECK(dominates(fast, naive));
  CHECK(dominates(small, naive));
  CHECK_FALSE(dominates(naive, small));
  CHECK_FALSE(dominates(fast, small));
  CHECK_FALSE(dominates(small, fast));
  CHECK_FALSE(dominates(fast, fast));
}
