// The entry point of Clang's libFuzzer, which brings main() with it.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ringside::fuzz::try_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
