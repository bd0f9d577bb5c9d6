// Fuzzing of what reads checkpoints: files are input from outside, and whatever is in them, the
// worst that may happen is an Error.
//
// A target (safetensors_target.cpp, ..._config_target.cpp, ..._index_target.cpp) has the entry
// point that libFuzzer asks for, and so can be linked with -fsanitize=fuzzer where clang has it.
// What ctest runs needs no clang: safetensors_driver.cpp, which makes inputs by damaging good ones,
// each from a seed and a number alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Throws, or worse, if a reader does anything but accept the input or refuse it with an Error.
// Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ringside::fuzz {

std::vector<std::string> good_inputs();  // of the target
std::vector<std::string> words();        // that are worth putting into one
void repair(std::string& input);  // puts right what would keep nearly every damaged input from
                                  // being looked at any further
bool was_accepted();              // whether the last input was

}  // namespace ringside::fuzz
