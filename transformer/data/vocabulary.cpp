#include "transformer/data/vocabulary.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "transformer/data/fingerprint.hpp"
#include "transformer/tokenizer/tokenizer_file.hpp"

namespace ringside::transformer {

namespace fs = std::filesystem;

Vocabulary::Vocabulary(Tokenizer tokenizer, std::string name)
    : tokenizer_(std::move(tokenizer)), name_(std::move(name)) {
  if (name_.empty()) name_ = "in use";
  // Hashes what would be saved, so the layout of the file that it came from does not matter.
  Fingerprint fingerprint;
  fingerprint.add(tokenizer_json(*tokenizer_));
  fingerprint_ = std::max(fingerprint.value(), 1u);
}

Vocabulary Vocabulary::load(const fs::path& path) {
  std::error_code ignored;
  return Vocabulary(load_tokenizer(path),
                    (fs::is_directory(path, ignored) ? path / "tokenizer.json" : path).string());
}

Vocabulary Vocabulary::of_checkpoint(const fs::path& directory) {
  const fs::path path = directory / "tokenizer.json";
  return fs::exists(path) ? load(path) : Vocabulary();
}

std::vector<std::int32_t> Vocabulary::encode(std::string_view text) const {
  if (tokenizer_) return tokenizer_->encode(text);
  std::vector<std::int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<std::uint8_t>(byte));
  return ids;
}

std::vector<std::int32_t> Vocabulary::encode_prompt(std::string_view text) const {
  require(!text.empty(), "a prompt needs at least one byte");
  return tokenizer_ ? tokenizer_->with_special_tokens(tokenizer_->encode(text)) : encode(text);
}

std::string Vocabulary::bytes_of(std::int32_t token) const {
  if (tokenizer_) return tokenizer_->has(token) ? tokenizer_->bytes_of(token) : "?";
  return std::string(1, token >= 0 && token < 256 ? static_cast<char>(token) : '?');
}

std::vector<std::uint8_t> Vocabulary::bytes_of(std::span<const std::int32_t> tokens) const {
  std::vector<std::uint8_t> bytes;
  for (const std::int32_t token : tokens) {
    const std::string text = bytes_of(token);
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  return bytes;
}

std::vector<std::uint32_t> Vocabulary::byte_counts() const {
  std::vector<std::uint32_t> counts(static_cast<std::size_t>(size()), is_bytes() ? 1 : 0);
  for (std::int32_t id = 0; tokenizer_ && id < tokenizer_->vocabulary(); ++id) {
    if (tokenizer_->has(id))
      counts[static_cast<std::size_t>(id)] =
          static_cast<std::uint32_t>(tokenizer_->bytes_of(id).size());
  }
  return counts;
}

}  // namespace ringside::transformer
