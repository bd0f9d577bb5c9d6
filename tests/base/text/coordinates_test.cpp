#include "base/text/coordinates.hpp"

#include <doctest/doctest.h>

using namespace ringside;

TEST_CASE("the coordinates of a rank, whose last axis varies fastest") {
  CHECK(coordinates_in_words("dp=2,tp=4", 0) == "dp=0,tp=0");
  CHECK(coordinates_in_words("dp=2,tp=4", 7) == "dp=1,tp=3");
  CHECK(coordinates_in_words("pp=2,dp=3,tp=2", 7) == "pp=1,dp=0,tp=1");
  CHECK(coordinates_in_words("cp=3", 2) == "cp=2");
}

TEST_CASE("what is no rank of a grid, and what is no grid, has no coordinates") {
  for (const char* grid : {"", "one device", "dp=,tp=2", "dp=0,tp=2", "=2,,", "dp=99999999999"})
    CHECK(coordinates_in_words(grid, 1) == "");
  CHECK(coordinates_in_words("dp=2,tp=4", 8) == "");
  CHECK(coordinates_in_words("dp=2,tp=4", -1) == "");
}
