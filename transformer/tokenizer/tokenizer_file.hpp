// tokenizer.json, as Hugging Face's tokenizers writes and reads it.
//
// Ringside reads byte-level BPE in all its forms (pre_tokenizer.hpp says which), with added tokens
// and a post_processor that puts tokens around a text. What is something else (a normalizer,
// Unigram, WordPiece, dropout, ...) is refused with a sentence that names it: a tokenizer that is
// read almost right gives wrong ids without a word.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "transformer/tokenizer/tokenizer.hpp"

namespace ringside::transformer {

// Reads the file, or tokenizer.json in the folder. Throws Error with the path and what is wrong.
Tokenizer load_tokenizer(const std::filesystem::path& path);

// Writes it in such a way that it is never seen half written. A path that ends in .json is the
// file; any other is a folder, made if it is not there, which gets tokenizer.json and, for
// transformers' AutoTokenizer, tokenizer_config.json. Returns the path of tokenizer.json.
std::filesystem::path save_tokenizer(const std::filesystem::path& path, const Tokenizer& tokenizer);

// The same from and to a string.
Tokenizer parse_tokenizer(std::string_view json);
std::string tokenizer_json(const Tokenizer& tokenizer);

}  // namespace ringside::transformer
