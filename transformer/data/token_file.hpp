// Token files: sequences of token ids, for other programs and from them.
//
//     NAME.json    [[5, 17, 2], [8, 8, 1, 0]]: a list of sequences. Or one sequence as a plain list
//     NAME.u16     one stream of 2-byte little-endian ids, which is cut into sequences
//     NAME.u32     the same with 4 bytes per id
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ringside::transformer {

using Tokens = std::vector<std::int32_t>;

// Whether the name ends like one of these.
bool is_token_file(const std::filesystem::path& path);

// The sequences in the file; none is empty. A stream is cut after every `length` tokens; a last
// sequence of a single token is dropped. Throws Error with the path and the reason: not readable,
// not one of these kinds, empty, an incomplete token, or an id above 2^31 - 1.
std::vector<Tokens> read_tokens(const std::filesystem::path& path, std::int64_t length);

// Writes one sequence. Throws Error if an id does not fit, or the file cannot be written.
void write_tokens(const std::filesystem::path& path, const Tokens& tokens);

}  // namespace ringside::transformer
