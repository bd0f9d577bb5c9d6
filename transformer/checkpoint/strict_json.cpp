#include "transformer/checkpoint/strict_json.hpp"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ringside::transformer {

using Json = nlohmann::json;

std::string shown(const Json& json) {
  std::string text = json.dump(-1, ' ', true);
  if (text.size() > 100) text.replace(97, std::string::npos, "...");
  return text;
}

Json parse_strictly(const std::string& text, std::string_view what, int deepest) {
  std::vector<std::set<std::string>> seen;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    require(depth <= deepest, "{} is nested more than {} levels deep", what, deepest);
    if (event == Json::parse_event_t::object_start) seen.emplace_back();
    if (event == Json::parse_event_t::object_end) seen.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      require(seen.back().insert(key).second, "{} names {} twice", what, shown(key));
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception&) {
    fail("{} is not JSON", what);
  }
}

}  // namespace ringside::transformer
