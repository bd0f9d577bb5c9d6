// read_pickle: what Python's pickle module wrote, if it is made of dictionaries, lists, tuples,
// texts, numbers, booleans and None, as JSON has them.
//
// PyTorch writes flight records so. A pickle may also name functions to call; one that does is
// refused, so reading a file runs nothing.
#pragma once

#include <string_view>

#include "base/json.hpp"

namespace ringside::collectives {

// A tuple is a list, and a key is a text. Throws Error that says at which byte, and what is wrong.
// Source: the opcodes of Python's Lib/pickletools.py, protocols 2 to 4.
Json read_pickle(std::string_view bytes);

}  // namespace ringside::collectives
