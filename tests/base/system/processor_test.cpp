#include "base/system/processor.hpp"

#include <fstream>
#include <string>

#include <doctest/doctest.h>

using namespace ringside;

// "flags : fpu vme ... avx2 ...", of x86-64 alone.
std::string flags_of_linux() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) return line + " ";
  return "";
}

TEST_CASE("processor: the features are those that Linux lists") {
  const std::string flags = flags_of_linux();
  const auto lists = [&](const std::string& name) {
    return flags.find(" " + name + " ") != std::string::npos;
  };
  const ProcessorFeatures has = processor_features();
  CHECK(has.avx2 == lists("avx2"));
  CHECK(has.avx512f == lists("avx512f"));
  CHECK(has.avx512vl == lists("avx512vl"));
  CHECK(has.avx512bf16 == lists("avx512_bf16"));
}
