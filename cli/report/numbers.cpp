#include "cli/report/numbers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace ringside::cli {

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

}  // namespace ringside::cli
