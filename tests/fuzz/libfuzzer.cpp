// The entry points of Clang's libFuzzer, which brings main() with it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/target.hpp"
#include "tests/transformer/temporary_directory.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ringside::fuzz::try_input({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Adds a folder with the valid inputs to the arguments: libFuzzer starts from the inputs that it
// finds in such folders.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static const TemporaryDirectory corpus;
  static std::string folder = corpus.path().string();
  static std::vector<char*> arguments(*argv, *argv + *argc);
  int number = 0;
  for (const std::string& input : ringside::fuzz::good_inputs())
    corpus.write("valid-" + std::to_string(number++), input);
  arguments.push_back(folder.data());
  *argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  *argv = arguments.data();
  return 0;
}
