#include "base/environment.hpp"

#include <cstdlib>

#include "base/error.hpp"
#include "base/text/read_number.hpp"

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
  const auto value = decimal_number<std::int64_t>(*text);
  require(value && *value >= low && *value <= high, "{}={} is not an integer from {} to {}", name,
          *text, low, high);
  return value;
}

}  // namespace ringside
