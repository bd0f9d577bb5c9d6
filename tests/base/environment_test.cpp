#include "base/environment.hpp"

#include <cstdlib>

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;

TEST_CASE("an unset or empty variable has no value") {
  unsetenv("RINGSIDE_TEST");
  CHECK(!environment("RINGSIDE_TEST"));
  setenv("RINGSIDE_TEST", "", 1);
  CHECK(!environment("RINGSIDE_TEST"));
  CHECK(!integer_environment("RINGSIDE_TEST", 0, 9));
}

TEST_CASE("an integer variable that is no integer within its bounds is an Error") {
  setenv("RINGSIDE_TEST", "7", 1);
  CHECK(integer_environment("RINGSIDE_TEST", 0, 9) == 7);
  for (const char* bad : {"7x", "x", "10", "-1", "7 ", "99999999999999999999"}) {
    setenv("RINGSIDE_TEST", bad, 1);
    const std::string expected =
        std::string("RINGSIDE_TEST=") + bad + " is not an integer from 0 to 9";
    CHECK_THROWS_WITH_AS(integer_environment("RINGSIDE_TEST", 0, 9), expected.c_str(), Error);
  }
}
