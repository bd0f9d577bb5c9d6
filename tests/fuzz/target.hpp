// Fuzzing of everything that reads bytes from outside: files, and messages. A reader must accept
// any input or throw Error; it must never crash.
//
// A target (NAME_target.cpp) is these functions for one reader. Two programs run it: driver.cpp
// damages valid inputs, needs no other compiler, and is what ctest runs; libfuzzer.cpp is the entry
// point of Clang's libFuzzer (cmake -DRINGSIDE_FUZZ=ON).
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

namespace ringside::fuzz {

// Gives the input to the reader. Returns whether the reader accepted it. Throws another exception
// than Error, or crashes, if the reader has a bug.
bool try_input(const std::string& input);

std::vector<std::string> good_inputs();  // valid inputs
std::vector<std::string> words();        // tokens to insert into an input

// Repairs what would make the reader reject nearly every damaged input at once, such as a length.
void repair(std::string& input);

// Whether `read` returns, rather than throwing Error.
template <class Read>
bool accepts(Read read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace ringside::fuzz
