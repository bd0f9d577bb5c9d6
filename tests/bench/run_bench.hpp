// Runs `ringside bench ...` on the model tiny, one thread for each rank, and reads its figures.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "tests/cli/run_program.hpp"

namespace ringside::testing {

struct BenchOutcome {
  Json rows;          // of --json
  std::string table;  // what the program prints beside it
};

// The test fails unless the bench ends well with lines of at most 80 columns.
inline BenchOutcome run_bench(const std::string& what, const std::vector<std::string>& options,
                              const Variables& variables = {}) {
  std::vector<std::string> command = {ringside_binary, "bench", what,     "--model", "tiny",
                                      "--threads",     "1",     "--json", "-"};
  command.insert(command.end(), options.begin(), options.end());
  const Outcome outcome = run_program(command, variables, Seconds(100));
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  for (std::size_t begin = 0; begin < outcome.err.size();) {
    const std::size_t end = std::min(outcome.err.find('\n', begin), outcome.err.size());
    CHECK(end - begin <= 80);
    begin = end + 1;
  }
  return {Json::parse(outcome.out), outcome.err};
}

}  // namespace ringside::testing
