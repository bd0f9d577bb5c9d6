// Which algorithm a call takes.
#include "collectives/choice.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;
using namespace ringside::collectives;

TEST_CASE("without a word the default of the catalogue is taken") {
  for (const Collective collective : all_collectives)
    CHECK(&AlgorithmChoice().choose(collective, 1000, DataType::fp32, 4) == &find_algorithm(collective));
}

TEST_CASE("what is forced is taken, and the rest is as it was") {
  const AlgorithmChoice choice("all_reduce=two_shot,broadcast=chain");
  CHECK(choice.choose(Collective::all_reduce, 1, DataType::fp32, 4).name == "two_shot");
  CHECK(choice.choose(Collective::broadcast, 1, DataType::fp32, 4).name == "chain");
  CHECK(choice.choose(Collective::reduce, 1, DataType::fp32, 4).name == "binomial");
}

TEST_CASE("a wrong name says which there are") {
  CHECK_THROWS_WITH_AS(
      AlgorithmChoice("all_reduce"),
      "'all_reduce' does not name an algorithm: write collective=algorithm, such as all_reduce=ring, with commas in "
      "between",
      Error);
  CHECK_THROWS_WITH_AS(AlgorithmChoice("reduce_scatter=tree"),
                       "there is no algorithm named 'tree' for reduce_scatter; there are ring, halving, direct", Error);
  CHECK_THROWS_AS(AlgorithmChoice("allreduce=ring"), Error);
  CHECK_THROWS_AS(AlgorithmChoice("all_reduce="), Error);
}
