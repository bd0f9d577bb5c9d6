// Fuzzes the reader of tokenizer.json.
#include "tests/fuzz/target.hpp"

#include "transformer/tokenizer/bpe_trainer.hpp"
#include "transformer/tokenizer/tokenizer_file.hpp"

namespace {

using namespace ringside::transformer;

// A tokenizer that was accepted encodes any text, and decodes it to the same bytes, unless it has
// been damaged so that it knows only some of them: then it says so.
void check_use(const Tokenizer& tokenizer) {
  ringside::fuzz::accepts([&] {
    tokenizer.decode(tokenizer.encode("Low, lower \xf0\x9f\x8c\x8a newest\n 123 <|endoftext|>"));
  });
}

}  // namespace

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  return accepts([&] { check_use(parse_tokenizer(input)); });
}

std::vector<std::string> good_inputs() {
  const std::string text = "low low low lower lower newest newest newest widest widest 2024 2025";
  std::vector<std::string> inputs;
  for (const char* expression : {"", "\\p{L}+|\\p{N}{1,3}|[^\\p{L}\\p{N}]+"}) {
    BpeTrainerOptions options;
    options.vocabulary = 270;
    options.expression = expression;
    inputs.push_back(tokenizer_json(train_bpe(text, options)));
  }
  return inputs;
}

std::vector<std::string> words() {
  return {"\"BPE\"",
          "\"ByteLevel\"",
          "\"Split\"",
          "\"Sequence\"",
          "\"vocab\":",
          "\"merges\":",
          "\"normalizer\":",
          "\"added_tokens\":",
          "\"special\":",
          "\"content\":",
          "\"Regex\":",
          "\"post_processor\":",
          "\"id\":",
          "true",
          "false",
          "null",
          "0",
          "-1",
          "255",
          "270",
          "2147483648",
          "1e999",
          "[]",
          "{}",
          "\"\"",
          "\"a b\"",
          "\"(((\"",
          "\"[\\\\p{L}\"",
          "\"(a|a)*b\"",
          "\\ud800",
          "\xff",
          ",",
          "[[[[[[[[",
          "{\"a\":"};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz
