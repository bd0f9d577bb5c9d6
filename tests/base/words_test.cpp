#include "base/words.hpp"

#include <doctest/doctest.h>

using namespace ringside;

TEST_CASE("ranks in words") {
  CHECK(ranks_in_words({3}) == "rank 3");
  CHECK(ranks_in_words({0, 1}) == "ranks 0 and 1");
  CHECK(ranks_in_words({0, 1, 2}) == "ranks 0 to 2");
  CHECK(ranks_in_words({0, 1, 2, 5, 7, 8, 9, 10}) == "ranks 0 to 2, 5 and 7 to 10");
}
