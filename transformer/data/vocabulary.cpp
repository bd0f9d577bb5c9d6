#include "transformer/data/vocabulary.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/text/printable.hpp"
#include "transformer/data/fingerprint.hpp"

namespace ringside::transformer {
namespace {

namespace fs = std::filesystem;

void write_file(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

Vocabulary::Vocabulary(const Json& json, std::string tokenizer, std::string name)
    : byte_counts_(json.at("byte_counts").get<std::vector<std::uint32_t>>()),
      beginning_(json.at("beginning").get<std::vector<std::int32_t>>()),
      fingerprint_(json.at("fingerprint").get<std::uint32_t>()),
      tokenizer_(std::move(tokenizer)),
      name_(std::move(name)) {
  require(!byte_counts_.empty() && fingerprint_ != 0, "its vocabulary is empty");
  require(
      !beginning_.empty() &&
          std::ranges::all_of(beginning_, [&](std::int32_t id) { return id >= 0 && id < size(); }),
      "its \"beginning\" is not a list of token ids from 0 to {}", size() - 1);
}

Vocabulary Vocabulary::of_checkpoint(const fs::path& directory) {
  const fs::path tokenizer = directory / "tokenizer.json", path = directory / "vocabulary.json";
  if (!fs::exists(tokenizer)) return {};
  require(fs::exists(path), "{} is missing: `ringside tokenize --tokenizer {} --save {}` writes it",
          path.string(), directory.string(), directory.string());
  const std::string text = read_file(path, "the vocabulary");
  try {
    return {Json::parse(text), read_file(tokenizer, "the tokenizer"), tokenizer.string()};
  } catch (const Error& problem) {
    fail("the vocabulary {} cannot be used: {}", path.string(), problem.what());
  }
}

std::int64_t Vocabulary::bytes_of(std::span<const std::int32_t> tokens) const {
  if (is_bytes()) return static_cast<std::int64_t>(tokens.size());
  std::int64_t bytes = 0;
  for (const std::int32_t token : tokens) bytes += byte_counts_.at(static_cast<std::size_t>(token));
  return bytes;
}

bool Vocabulary::is_of(const std::string& tokenizer_json) const {
  if (is_bytes()) return false;
  Fingerprint as_saved_before;
  as_saved_before.add(tokenizer_json);
  return tokenizer_json == tokenizer_ || as_saved_before.value() == fingerprint_;
}

void Vocabulary::save(const fs::path& directory) const {
  if (is_bytes()) return;
  const fs::path config = directory / "tokenizer_config.json";
  if (!fs::exists(directory / "tokenizer.json"))
    write_file(directory / "tokenizer.json", tokenizer_);
  if (!fs::exists(config))  // for AutoTokenizer of transformers
    write_file(config, Json{{"tokenizer_class", "PreTrainedTokenizerFast"}}.dump(2) + "\n");
  const Json json = {
      {"fingerprint", fingerprint_}, {"beginning", beginning_}, {"byte_counts", byte_counts_}};
  write_file(directory / "vocabulary.json", json.dump() + "\n");
}

std::string text_of(std::span<const std::int32_t> tokens, bool are_bytes) {
  if (!are_bytes) return fmt::format("{}", fmt::join(tokens, ","));
  std::string bytes;
  for (const std::int32_t token : tokens)
    bytes += token >= 0 && token < 256 ? static_cast<char>(token) : '?';
  return printable(bytes);
}

}  // namespace ringside::transformer
