#include "transformer/recompute_groups.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "base/error.hpp"

namespace ringside::transformer {

RecomputeGroups recompute_groups_from(const std::string& text) {
  if (text == "none" || text == "selective") return {};
  if (text == "full") return {.blocks = 1};
  long long blocks = 0, inner = 0;
  int read = 0;
  const auto whole = [&] { return read == static_cast<int>(text.size()); };
  if (std::sscanf(text.c_str(), "every=%lld%n", &blocks, &read) == 1 && whole() && blocks >= 1)
    return {blocks};
  read = 0;
  if (std::sscanf(text.c_str(), "nested=%lld,%lld%n", &blocks, &inner, &read) == 2 && whole() &&
      inner >= 1 && inner < blocks)
    return {blocks, inner};
  fail(
      "expected none, selective, full, every=K for groups of K blocks, or nested=K1,K2 for groups "
      "of K1 with smaller ones of K2 in them; got '{}'",
      text);
}

std::string text_of(const RecomputeGroups& groups) {
  if (groups.inner > 0) return fmt::format("nested={},{}", groups.blocks, groups.inner);
  return groups.blocks == 0   ? "none"
         : groups.blocks == 1 ? "full"
                              : fmt::format("every={}", groups.blocks);
}

}  // namespace ringside::transformer
