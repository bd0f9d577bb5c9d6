#include "base/text/words.hpp"

#include <doctest/doctest.h>

using namespace ringside;

TEST_CASE("ranks in words") {
  CHECK(ranks_in_words({3}) == "rank 3");
  CHECK(ranks_in_words({0, 1}) == "ranks 0 and 1");
  CHECK(ranks_in_words({0, 1, 2}) == "ranks 0 to 2");
  CHECK(ranks_in_words({0, 1, 2, 5, 7, 8, 9, 10}) == "ranks 0 to 2, 5 and 7 to 10");
}

TEST_CASE("a mistyped name is compared with those that exist") {
  const std::vector<std::string> names = {"all_reduce", "reduce", "reduce_scatter", "ring", "tcp"};
  CHECK(did_you_mean("allreduce", names) == " (did you mean all_reduce?)");
  CHECK(did_you_mean("All-Reduce", names) == " (did you mean all_reduce?)");
  CHECK(did_you_mean("redcue", names) == " (did you mean reduce?)");
  CHECK(did_you_mean("reduce_scater", names) == " (did you mean reduce_scatter?)");
  CHECK(did_you_mean("rign", names) == " (did you mean ring?)");
  CHECK(did_you_mean("tpc", names) == " (did you mean tcp?)");
  CHECK(did_you_mean("tree", names) == "");
  CHECK(did_you_mean("", names) == "");
}

TEST_CASE("a word of a shell's command line is quoted where it needs to be") {
  CHECK(for_shell("runs/a-1.json") == "runs/a-1.json");
  CHECK(for_shell("") == "''");
  CHECK(for_shell("two words") == "'two words'");
  CHECK(for_shell("it's") == "'it'\\''s'");
}
