// Sequences of token ids in a file: what another program, or another framework, has made of a text.
//
//     NAME.json    [[5, 17, 2], [8, 8, 1, 0]]    a list of sequences, or one sequence as a plain list
//     NAME.u16     two bytes a token, little-endian, one long stream, which is cut into sequences
//     NAME.u32     the same with four bytes
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ringside::transformer {

using Tokens = std::vector<std::int32_t>;

// The file's sequences, none of them empty; a stream is cut every `length` tokens, and a rest of a
// single token is left out. Throws Error with the path and what is wrong: not readable, of none of
// these kinds, empty, not whole tokens, ids that no model has.
std::vector<Tokens> read_tokens(const std::filesystem::path& path, std::int64_t length);

}  // namespace ringside::transformer
