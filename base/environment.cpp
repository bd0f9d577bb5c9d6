#include "base/environment.hpp"

#include <charconv>
#include <cstdlib>

#include "base/error.hpp"

namespace ringside {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> integer_environment(const char* name, std::int64_t low,
                                                std::int64_t high) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  const bool whole = error == std::errc() && end == text->data() + text->size();
  require(whole && value >= low && value <= high, "{}={} is not an integer from {} to {}", name,
          *text, low, high);
  return value;
}

}  // namespace ringside
