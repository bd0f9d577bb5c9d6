#include "transformer/checkpoint/strict_json.hpp"

#include "base/error.hpp"

namespace ringside::transformer {

std::string shown(const Json& json) {
  std::string text = json.ascii();
  if (text.size() > 100) text.replace(97, std::string::npos, "...");
  return text;
}

Json parse_strictly(const std::string& text, std::string_view what, int deepest) {
  try {
    return Json::parse(text, {.what = what, .deepest = deepest, .unique_keys = true});
  } catch (const JsonError& error) {
    if (error.line == 0) throw;  // JSON, but with a number that is too large
    fail("{} is not JSON: the error is in line {}, at byte {}", what, error.line, error.offset);
  }
}

}  // namespace ringside::transformer
