#include "transformer/data/packed_tokens.hpp"

#include "base/error.hpp"

namespace ringside::transformer {
namespace {

template <class Id>
std::vector<Id> narrowed(std::span<const std::int32_t> ids) {
  std::vector<Id> packed(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) packed[i] = static_cast<Id>(ids[i]);
  return packed;
}

}  // namespace

PackedTokens::PackedTokens(std::span<const std::int32_t> ids, std::int64_t vocabulary) {
  for (const std::int32_t id : ids)
    require(id >= 0 && id < vocabulary, "the token {} is not in a vocabulary of {}", id,
            vocabulary);
  if (vocabulary <= 1 << 8)
    ids_ = narrowed<std::uint8_t>(ids);
  else if (vocabulary <= 1 << 16)
    ids_ = narrowed<std::uint16_t>(ids);
  else
    ids_ = narrowed<std::int32_t>(ids);
}

std::size_t PackedTokens::size() const {
  return std::visit([](const auto& ids) { return ids.size(); }, ids_);
}

std::size_t PackedTokens::bytes_per_id() const {
  return std::visit([](const auto& ids) { return sizeof(ids[0]); }, ids_);
}

void PackedTokens::append_to(std::vector<std::int32_t>& into, std::size_t first,
                             std::size_t count) const {
  require(first <= size() && count <= size() - first,
          "tokens {} to {} were asked for, but there are {}", first, first + count, size());
  std::visit(
      [&](const auto& ids) {
        const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
        into.insert(into.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
      },
      ids_);
}

std::vector<std::int32_t> PackedTokens::all() const {
  std::vector<std::int32_t> ids;
  append_to(ids, 0, size());
  return ids;
}

}  // namespace ringside::transformer
