// Libraries that are opened at run time, with the C library's mathematics as an example.
#include "base/system/shared_library.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;

TEST_CASE("a function of a library that was opened at run time can be called") {
  const SharedLibrary library("mathematics", "libm.so.6", "/nowhere");
  double (*square_root)(double) = nullptr;
  library.find(square_root, "sqrt");
  CHECK(square_root(9) == 3);
}

TEST_CASE("a missing library is an error that says where it was looked for") {
  CHECK_THROWS_WITH_AS(SharedLibrary("NCCL", "libnone.so.2", "/opt/none"),
                       "NCCL cannot be opened: libnone.so.2: cannot open shared object file: No "
                       "such file or directory; /opt/none/libnone.so.2: cannot open shared object "
                       "file: No such file or directory; install it, or add its folder to "
                       "LD_LIBRARY_PATH",
                       Error);
  CHECK_THROWS_WITH_AS(
      SharedLibrary("the device", "libnone.so", "/opt/none", "build it: make none"),
      "the device cannot be opened: libnone.so: cannot open shared object file: No such file or "
      "directory; /opt/none/libnone.so: cannot open shared object file: No such file or directory; "
      "build it: make none",
      Error);
}

TEST_CASE("a function that a library lacks is an error that names both") {
  const SharedLibrary library("mathematics", "libm.so.6", "/nowhere");
  double (*function)(double) = nullptr;
  CHECK_THROWS_WITH_AS(
      library.find(function, "sqrt_of_a_later_version"),
      "libm.so.6 is too old: it has no function sqrt_of_a_later_version; install a newer version",
      Error);
}
