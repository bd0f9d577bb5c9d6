// tokenizer.json: the file format of Hugging Face's tokenizers.
//
// Ringside reads byte-level BPE with the pre-tokenizers of pre_tokenizer.hpp, added tokens, and a
// post_processor that puts special tokens around a text. Everything else (a normalizer, Unigram,
// WordPiece, dropout, ...) is refused by name: a tokenizer that is read almost correctly gives
// wrong ids without any error.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "transformer/tokenizer/tokenizer.hpp"

namespace ringside::transformer {

// Reads `path`, or tokenizer.json in it if it is a directory. Throws Error with the path and the
// reason.
Tokenizer load_tokenizer(const std::filesystem::path& path);

// Writes the tokenizer atomically and returns the path of the file. A path that ends in .json is
// the file itself. Any other path is a directory, made if necessary, for tokenizer.json and, for
// AutoTokenizer of transformers, tokenizer_config.json.
std::filesystem::path save_tokenizer(const std::filesystem::path& path, const Tokenizer& tokenizer);

// The same from and to a string. parse_tokenizer throws Error with the reason.
Tokenizer parse_tokenizer(std::string_view text);
std::string tokenizer_json(const Tokenizer& tokenizer);

}  // namespace ringside::transformer
