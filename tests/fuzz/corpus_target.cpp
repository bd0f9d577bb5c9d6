// Fuzzes the reader of NAME.corpus.json, which says what the tokens of a run are.
#include "tests/fuzz/target.hpp"

#include <stdexcept>

#include "transformer/data/corpus_file.hpp"

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  return accepts([&] {
    const transformer::CorpusFile file = transformer::parse_corpus(input, "NAME.u16");
    if (file.vocabulary.is_bytes() || file.vocabulary.fingerprint() == 0)
      throw std::logic_error("a corpus without a vocabulary was accepted");
    if (file.vocabulary.bytes_of(file.vocabulary.beginning()) < 0)
      throw std::logic_error("a sample begins with fewer than 0 bytes");
  });
}

std::vector<std::string> good_inputs() {
  return {R"({"files": 2, "bytes": 20, "held_out_bytes": 1, "training_tokens": 7, )"
          R"("held_out_tokens": 1, "text": 2885641393, "vocabulary": {"fingerprint": 764039798, )"
          R"("beginning": [1, 2], "byte_counts": [13, 9, 1, 4]}, "tokenizer": "{\"model\": {}}"})"};
}

std::vector<std::string> words() {
  return {"[]",      "{}", "null",  "-1",      "1e999", "1.5",        "4294967296",          "\"\"",
          "\\u0000", ",",  "[[[[[", "{\"a\":", "\xff",  "\"bytes\":", "99999999999999999999"};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz
