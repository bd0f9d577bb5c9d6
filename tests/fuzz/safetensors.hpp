// Fuzzing of the readers of checkpoint files. A reader must accept any file or throw Error; it must
// never crash.
//
// Each target (safetensors_target.cpp, safetensors_config_target.cpp, safetensors_index_target.cpp)
// has the entry point of libFuzzer, so it can be linked with clang's -fsanitize=fuzzer. ctest runs
// it without clang: safetensors_driver.cpp damages valid inputs. Each input depends only on a seed
// and a number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Gives the input to the reader. Throws or crashes unless the reader accepts it or throws Error.
// Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ringside::fuzz {

std::vector<std::string> good_inputs();  // valid inputs of the target
std::vector<std::string> words();        // tokens to insert into an input
bool was_accepted();                     // whether the reader accepted the last input

// Repairs what would make the reader reject nearly every damaged input at once, such as a length.
void repair(std::string& input);

}  // namespace ringside::fuzz
