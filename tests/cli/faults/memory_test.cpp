// A limit on memory is a sentence, whenever it strikes.

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "tests/cli/run_program.hpp"

using namespace ringside::testing;

namespace {

// Runs `ringside ARGUMENTS` with so many KiB of address space.
Outcome with_address_space(int kib, const std::string& arguments) {
  return run_program({"sh", "-c", "ulimit -v " + std::to_string(kib) + "; exec \"$0\" " + arguments,
                      ringside_binary});
}

bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("SKIPPED: a sanitizer reserves more address space than the test allows");
  return true;
#else
  return false;
#endif
}

}  // namespace

TEST_CASE("too little address space to load the BLAS is said, rather than waited for") {
  if (is_sanitized()) return;
  for (const char* arguments : {"--version", "train -n 2 --steps 1"}) {
    CAPTURE(arguments);
    const auto outcome = with_address_space(200000, arguments);
    CHECK_FALSE(outcome.timed_out);
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.out == "");
    CHECK(outcome.err.starts_with(
        "ringside: a limit on address space (ulimit -v) is too low: the BLAS would wait for memory "
        "for ever. Raise the limit (ulimit -v unlimited)"));
  }
}

TEST_CASE("a command that runs out of memory says so and what to do") {
  if (is_sanitized()) return;
  const auto outcome =
      with_address_space(2000000, "train --threads 1 --steps 1 --d-model 32768 --memory-limit 0");
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 1);
  // Which allocation fails first depends on the machine: a tensor's says how large it is.
  CHECK(outcome.err.starts_with("ringside: out of memory: "));
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
}
