#include "transformer/data/corpus_file.hpp"

#include <limits>

#include "base/error.hpp"
#include "base/read_file.hpp"

namespace ringside::transformer {

namespace fs = std::filesystem;

bool is_corpus_file(const fs::path& path) {
  return path.extension() == ".u16" || path.extension() == ".u32";
}

CorpusFile read_corpus_file(const fs::path& tokens) {
  const fs::path path = fs::path(tokens).replace_extension(".corpus.json");
  require(fs::exists(path),
          "{} is missing, which says what the tokens in {} are: make both with ringside tokenize "
          "--tokenizer PATH --data TEXT --out {}",
          path.string(), tokens.string(), tokens.string());
  const std::string text = read_file(path, "the corpus");
  try {
    return parse_corpus(text, tokens);
  } catch (const Error& problem) {
    fail("the corpus {} cannot be used: {}", path.string(), problem.what());
  }
}

CorpusFile parse_corpus(const std::string& text, const fs::path& tokens) {
  const Json json = Json::parse(text);
  const auto count = [&](const char* key) { return json.at(key).get<std::uint64_t>(); };
  return {.files = json.at("files").get<int>(),
          .bytes = count("bytes"),
          .held_out_bytes = count("held_out_bytes"),
          .training_tokens = count("training_tokens"),
          .held_out_tokens = count("held_out_tokens"),
          .text = json.at("text").get<std::uint32_t>(),
          .vocabulary = {json.at("vocabulary"), json.at("tokenizer").text(), tokens.string()}};
}

Tokens read_corpus_tokens(const fs::path& tokens, const CorpusFile& description) {
  // One sequence: it is not cut.
  Tokens ids = std::move(read_tokens(tokens, std::numeric_limits<std::int64_t>::max()).front());
  require(description.training_tokens <= ids.size() &&
              description.held_out_tokens == ids.size() - description.training_tokens,
          "{} has {} tokens, but the corpus.json beside it is for {} and {}: make both again",
          tokens.string(), ids.size(), description.training_tokens, description.held_out_tokens);
  return ids;
}

Vocabulary vocabulary_of(const std::vector<fs::path>& data) {
  if (data.empty() || !is_corpus_file(data.front())) return {};
  return read_corpus_file(data.front()).vocabulary;
}

}  // namespace ringside::transformer
