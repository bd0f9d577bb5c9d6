// PackedTokens: the token ids of a long text, in the narrowest type that holds them all.
//
//     vocabulary up to 256       1 byte per token      72 65 6c 6c 6f
//     vocabulary up to 65536     2 bytes               4e83 1a02
//     larger                     4 bytes
//
// Every rank keeps the corpus in memory for the whole run. Only the windows of a batch are widened
// to the int32 that the model reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace ringside::transformer {

using Bytes = std::vector<std::uint8_t>;

class PackedTokens {
 public:
  PackedTokens() = default;
  PackedTokens(Bytes bytes) : ids_(std::move(bytes)) {}  // NOLINT: each byte is a token, 0..255

  // Throws Error if an id is not in 0 .. vocabulary - 1.
  PackedTokens(std::span<const std::int32_t> ids, std::int64_t vocabulary);

  std::size_t size() const;
  std::size_t bytes_per_id() const;  // 1, 2 or 4

  // Appends tokens first .. first + count - 1 to `ids`. Throws Error if they do not all exist.
  void append_to(std::vector<std::int32_t>& ids, std::size_t first, std::size_t count) const;
  std::vector<std::int32_t> all() const;

 private:
  std::variant<Bytes, std::vector<std::uint16_t>, std::vector<std::int32_t>> ids_;
};

}  // namespace ringside::transformer
