#include "cli/pictures/numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

namespace ringside::cli {
namespace {

constexpr std::pair<std::string_view, std::uint64_t> units[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30},   {"MiB", 1ull << 20},
    {"KiB", 1ull << 10}, {"TB", 1000000000000}, {"GB", 1000000000},
    {"MB", 1000000},     {"KB", 1000},          {"B", 1}};

}  // namespace

std::string with_unit(double number) {
  for (const auto& [size, unit] : {std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (number >= 0.9995 * size)
      return fmt::format("{:.{}f}{}", number / size, number < 99.95 * size ? 1 : 0, unit);
  }
  return fmt::format("{:.0f}", number);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

std::string in_ms(double seconds) {
  return fmt::format("{:.{}f}", seconds * 1e3, seconds < 0.1 ? 2 : 1);
}

std::string counted(std::int64_t n, std::string_view thing) {
  const char* plural = thing.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", n, thing, n == 1 ? "" : plural);
}

std::uint64_t parse_bytes(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, text.data() + text.size());
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) unit = "B";
  const auto found =
      std::ranges::find(units, unit, &std::pair<std::string_view, std::uint64_t>::first);
  const double bytes = found == std::end(units) ? 0 : number * static_cast<double>(found->second);
  require(error == std::errc() && found != std::end(units) && bytes >= 0 && bytes < 1e18 &&
              bytes == static_cast<double>(static_cast<std::uint64_t>(bytes)),
          "'{}' is not a number of bytes: write 4B, 64KB (64000 bytes), 64KiB (65536 bytes), 10MB "
          "or 1GB",
          text);
  return static_cast<std::uint64_t>(bytes);
}

std::string bytes_to_text(std::uint64_t bytes) {
  for (const auto& [unit, size] : units)
    if (unit.size() < 3 && bytes >= size && bytes % size == 0)
      return fmt::format("{} {}", bytes / size, unit);
  return fmt::format("{} B", bytes);
}

std::string size_text(double bytes) {
  return bytes_to_text(static_cast<std::uint64_t>(std::llround(bytes)));
}

}  // namespace ringside::cli
