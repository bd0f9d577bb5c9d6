#include "planning/json_fields.hpp"

#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "transformer/checkpoint/strict_json.hpp"

namespace ringside::planning {

using transformer::shown;

Json parse_json(const std::string& text, const std::string& what) {
  try {
    return Json::parse(text, {.what = what, .deepest = 16, .unique_keys = true});
  } catch (const JsonError& error) {
    if (error.line == 0) throw;  // a number that is too large
    fail("{} is not JSON: the error is in line {}", what, error.line);
  }
}

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

JsonFields::JsonFields(const Json& object, std::string place)
    : object_(&object), place_(std::move(place)) {
  if (!object.is_object())
    fail("{} is {}, but an object {{...}} is expected",
         place_.substr(0, place_.find_last_not_of(".: ") + 1), shown(object));
}

const Json* JsonFields::find(const char* key) {
  read_.insert(key);
  const Json* const found = object_->find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const Json& JsonFields::get(const char* key) {
  const Json* const value = find(key);
  require(value != nullptr, "{}{} is missing", place_, key);
  return *value;
}

bool JsonFields::has(const char* key) {
  return find(key) != nullptr;
}

std::string JsonFields::text(const char* key, const std::optional<std::string>& if_absent) {
  if (if_absent && !has(key)) return *if_absent;
  const Json& value = get(key);
  require(value.is_string(), "{}{} is {}, but text in quotes is expected", place_, key,
          shown(value));
  return value.get<std::string>();
}

std::int64_t JsonFields::count(const char* key, std::optional<std::int64_t> if_absent) {
  if (if_absent && !has(key)) return *if_absent;
  const Json& value = get(key);
  require(value.is_number_integer() && value > 0 && value <= 1'000'000'000,
          "{}{} is {}, but an integer from 1 to 1000000000 is expected", place_, key, shown(value));
  return value.get<std::int64_t>();
}

double JsonFields::number(const char* key, const Range& range, std::optional<double> if_absent) {
  if (if_absent && !has(key)) return *if_absent;
  const Json& value = get(key);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  require(number >= range.least && number <= range.most &&
              !(range.without_least && number == range.least),
          "{}{} is {}, but a number {} is expected", place_, key, shown(value), range.name);
  return number;
}

bool JsonFields::flag(const char* key, bool if_absent) {
  const Json* const value = find(key);
  if (value == nullptr) return if_absent;
  require(value->is_boolean(), "{}{} is {}, but true or false is expected", place_, key,
          shown(*value));
  return value->get<bool>();
}

JsonFields JsonFields::object(const char* key) {
  return {get(key), fmt::format("{}{}.", place_, key)};
}

std::vector<JsonFields> JsonFields::list(const char* key) {
  const Json& value = get(key);
  if (!value.is_array() || value.empty())
    fail("{}{} is {}, but a list of objects is expected", place_, key, shown(value));
  std::vector<JsonFields> all;
  for (std::size_t i = 0; i < value.size(); ++i)
    all.emplace_back(value[i], fmt::format("{}{}[{}].", place_, key, i));
  return all;
}

void JsonFields::done() const {
  for (const auto& [key, value] : object_->items())
    require(read_.contains(key), "{}{} is an unknown key; known are {}", place_, key,
            fmt::join(read_, ", "));
}

}  // namespace ringside::planning
