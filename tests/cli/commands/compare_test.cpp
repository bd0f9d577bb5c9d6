// `ringside compare`: two runs of --metrics side by side.

#include <doctest/doctest.h>

#include <fstream>

#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/cli/pictures/report/markup.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside::testing;

TEST_CASE("compare shows two runs side by side and says how far their losses are apart") {
  const Training training({"--steps", "6"});
  const std::string one = training.path("one").string(), two = training.path("two").string(),
                    other = training.path("other").string(), page = training.path("page").string();
  REQUIRE(training.run({"--metrics", one}).exit_code == 0);
  REQUIRE(training.run({"--metrics", two}).exit_code == 0);
  REQUIRE(training.run({"--metrics", other, "--lr", "0.02"}).exit_code == 0);
  const auto compare = [&](const Command& more) {
    Command command = {ringside_binary, "compare"};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command);
  };
  const Outcome equal = compare({one, two});
  CHECK(equal.err == "");
  CHECK(equal.exit_code == 0);
  CHECK(contains(equal.out, "The losses of 6 steps are equal.\n"));
  const Outcome different = compare({one, other, "--html", page});
  CHECK(contains(different.out, "The losses of 6 steps differ by at most "));
  CHECK(contains(different.out, "tokens/s (median)"));
  CHECK(ringside::tests::what_is_malformed(read_file(page)) == "");
  CHECK(contains(read_file(page), "Time of each step"));

  std::ofstream(training.path("bad")) << "{\"step\": 1}\n";
  const std::string bad = training.path("bad").string();
  CHECK(compare({one, bad}).err ==
        "ringside: line 1 of " + bad + " is not a row of `ringside train --metrics`\n");
  CHECK(compare({one, "/nope"}).err ==
        "ringside: cannot read /nope: is it a file of `ringside train --metrics`?\n");
}
