// Corpus files: text that `ringside tokenize --data` has encoded, for a run to train on.
//
//     NAME.u16            the tokens of the training part, then those of the held-out part: one
//                         stream (token_file.hpp); or NAME.u32
//     NAME.corpus.json    where the parts end, how many bytes they had, a hash of these bytes, the
//                         vocabulary (vocabulary.hpp) and the text of the tokenizer.json
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "transformer/data/token_file.hpp"
#include "transformer/data/vocabulary.hpp"

namespace ringside::transformer {

// What NAME.corpus.json says.
struct CorpusFile {
  int files = 0;  // of text
  std::size_t bytes = 0, held_out_bytes = 0;
  std::size_t training_tokens = 0, held_out_tokens = 0;
  std::uint32_t text = 0;  // Corpus::fingerprint() of the same text as bytes
  Vocabulary vocabulary;
};

// Whether a run reads tokens from this path, by its name: NAME.u16 or NAME.u32.
bool is_corpus_file(const std::filesystem::path& path);

// Reads the description of NAME.u16, without the tokens. Throws Error with the path and the reason;
// if the file is missing, with the command that makes it.
CorpusFile read_corpus_file(const std::filesystem::path& tokens);

// The same of the text of NAME.corpus.json. Throws Error with the reason.
CorpusFile parse_corpus(const std::string& text, const std::filesystem::path& tokens);

// Reads the tokens. Throws Error if they are not as many as the description says.
Tokens read_corpus_tokens(const std::filesystem::path& tokens, const CorpusFile& description);

// The vocabulary of what a run trains on: of the first path if it is a corpus file, else bytes.
Vocabulary vocabulary_of(const std::vector<std::filesystem::path>& data);

}  // namespace ringside::transformer
