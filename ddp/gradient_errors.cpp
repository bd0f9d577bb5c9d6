#include "ddp/gradient_errors.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include <fmt/format.h>

#include "base/random.hpp"

namespace ringside::ddp {
namespace {

// Every name ends with a zero, so that {"ab", "c"} and {"a", "bc"} differ.
std::uint32_t hash_of(const std::vector<std::string>& names) {
  std::uint64_t hash = 0;
  for (const std::string& name : names) {
    for (const char letter : name) hash = mix_bits(hash + static_cast<unsigned char>(letter));
    hash = mix_bits(hash);
  }
  return static_cast<std::uint32_t>(hash >> 32);
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 10;
  const std::size_t shown = std::min(names.size(), most);
  const std::string list = fmt::format("{}", fmt::join(std::span(names).first(shown), ", "));
  return names.size() == shown ? list : fmt::format("{} and {} more", list, names.size() - shown);
}

}  // namespace

std::string label_without(std::string_view data, const std::vector<std::string>& missing) {
  if (missing.empty()) return std::string(data);
  return fmt::format("{} without {} gradient{} ({:07x})", data, missing.size(),
                     missing.size() == 1 ? "" : "s", hash_of(missing) & 0xfffffff);
}

void rethrow_with_names(const Error& error, int rank, const std::vector<std::string>& missing) {
  if (missing.empty()) throw;
  fail("{}. On rank {} backward gave no gradient to {}", error.what(), rank, list_of(missing));
}

void refuse_second_gradient(const std::string& parameter) {
  fail(
      "the gradient of {} is complete a second time since the last finish(), and its reduction may "
      "be under way: call finish() after every backward, or no_sync() before all but the last",
      parameter);
}

}  // namespace ringside::ddp
