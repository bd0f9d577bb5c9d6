#include "transformer/data/token_file.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"

namespace ringside::transformer {
namespace {

constexpr std::uint64_t largest_id = std::numeric_limits<std::int32_t>::max();

Tokens sequence_from(const Json& json, std::size_t number) {
  require(json.is_array(), "sequence {} is not a list of token ids", number);
  require(!json.empty(), "sequence {} is empty", number);
  Tokens tokens;
  for (const Json& id : json) {
    const bool fits = id.is_number_unsigned() && id.get<std::uint64_t>() <= largest_id;
    require(fits, "sequence {} has {:.40} at position {}, which is not a token id", number,
            id.ascii(), tokens.size());
    tokens.push_back(id.get<std::int32_t>());
  }
  return tokens;
}

std::vector<Tokens> sequences_of_json(const std::string& text) {
  const Json json = Json::parse(text);
  require(json.is_array() && !json.empty(),
          "a list of sequences is expected, such as [[5, 17, 2], [8, 1]]");
  if (json.front().is_number()) return {sequence_from(json, 0)};
  std::vector<Tokens> sequences;
  for (const Json& sequence : json) sequences.push_back(sequence_from(sequence, sequences.size()));
  return sequences;
}

template <class Id>
std::vector<Tokens> sequences_of_stream(const std::string& bytes, std::int64_t length) {
  require(bytes.size() % sizeof(Id) == 0,
          "its {} bytes are not a whole number of tokens of {} bytes", bytes.size(), sizeof(Id));
  std::vector<Tokens> sequences;
  for (std::size_t i = 0; i < bytes.size() / sizeof(Id); ++i) {
    Id id = 0;
    std::memcpy(&id, bytes.data() + i * sizeof id, sizeof id);
    require(id <= largest_id, "it has {} at position {}, which is not a token id", id, i);
    if (i % static_cast<std::size_t>(length) == 0) sequences.emplace_back();
    sequences.back().push_back(static_cast<std::int32_t>(id));
  }
  if (sequences.size() > 1 && sequences.back().size() == 1) sequences.pop_back();
  return sequences;
}

template <class Id>
void write_stream(AtomicFile& file, const Tokens& tokens) {
  std::vector<Id> stream;
  for (const std::int32_t id : tokens) {
    require(std::in_range<Id>(id), "the id {} does not fit into {} bytes: write to a file NAME.u32",
            id, sizeof(Id));
    stream.push_back(static_cast<Id>(id));
  }
  file.write(std::as_bytes(std::span(stream)));
}

}  // namespace

bool is_token_file(const std::filesystem::path& path) {
  const auto kind = path.extension();
  return kind == ".json" || kind == ".u16" || kind == ".u32";
}

std::vector<Tokens> read_tokens(const std::filesystem::path& path, std::int64_t length) {
  require(length >= 1, "a stream of tokens cannot be cut into sequences of {} tokens", length);
  require(is_token_file(path),
          "cannot read tokens from {}: its name must end in .json, .u16 or .u32, which gives the "
          "format",
          path.string());
  const std::string bytes = read_file(path, "tokens from");
  const auto kind = path.extension();
  try {
    require(!bytes.empty(), "it is empty");
    if (kind == ".json") return sequences_of_json(bytes);
    return kind == ".u16" ? sequences_of_stream<std::uint16_t>(bytes, length)
                          : sequences_of_stream<std::uint32_t>(bytes, length);
  } catch (const Error& error) {
    fail("cannot read tokens from {}: {}", path.string(), error.what());
  }
}

void write_tokens(const std::filesystem::path& path, const Tokens& tokens) {
  require(is_token_file(path), "the name of {} must end in .json, .u16 or .u32", path.string());
  const auto kind = path.extension();
  AtomicFile file(path);
  if (kind == ".json") file.write(Json(tokens).dump() + "\n");
  if (kind == ".u16") write_stream<std::uint16_t>(file, tokens);
  if (kind == ".u32") write_stream<std::uint32_t>(file, tokens);
  file.commit();
}

}  // namespace ringside::transformer
