// The token ids of a long text, one behind the other, in the narrowest type that holds them all.
//
//     bytes                        1 byte a token      72 65 6c 6c 6f
//     a vocabulary up to 65536     2 bytes             4e83 1a02
//     a larger one                 4 bytes
//
// A corpus stays in memory for a whole run, on every rank; so it is kept small, and widened to
// int32, which the model reads, a window at a time.
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
  PackedTokens(Bytes bytes) : ids_(std::move(bytes)) {}  // NOLINT: a byte is a token, 0..255

  // `ids` lie in 0..vocabulary - 1; throws Error if one does not.
  PackedTokens(std::span<const std::int32_t> ids, std::int64_t vocabulary);

  std::size_t size() const;
  std::size_t bytes_per_id() const;  // 1, 2 or 4

  // Appends tokens first .. first + count - 1 to `ids`. They must be there.
  void append_to(std::vector<std::int32_t>& ids, std::size_t first, std::size_t count) const;
  std::vector<std::int32_t> all() const;

 private:
  std::variant<Bytes, std::vector<std::uint16_t>, std::vector<std::int32_t>> ids_;
};

}  // namespace ringside::transformer
