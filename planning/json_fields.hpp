// JsonFields: reads the fields of a JSON object, and says where in the file a wrong one stands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace ringside::planning {

// The content of a JSON file. Throws Error with the path, and the line of a syntax error.
Json read_json_file(const std::filesystem::path& path);

// Parses text; `what` names it in errors.
Json parse_json(const std::string& text, const std::string& what);

// A range of numbers, and how an error names it: "a number above 0".
struct Range {
  const char* name;
  double least, most = std::numeric_limits<double>::max();
  bool without_least = false;
};
namespace range {
inline constexpr Range positive{.name = "above 0", .least = 0, .without_least = true};
inline constexpr Range not_negative{.name = "of at least 0", .least = 0};
inline constexpr Range at_least_one{.name = "of at least 1", .least = 1};
inline constexpr Range share{
    .name = "above 0 and at most 1", .least = 0, .most = 1, .without_least = true};
inline constexpr Range share_or_none{.name = "from 0 to 1", .least = 0, .most = 1};
}  // namespace range

// A field is named by its place: "machine.json: levels[1].gbps". All functions throw Error. A field
// that is not there has the value `if_absent`, and is an error without one.
class JsonFields {
 public:
  // `place` is "machine.json: " for the whole file, "machine.json: levels[1]." within it.
  JsonFields(const Json& object, std::string place);

  std::string text(const char* key, const std::optional<std::string>& if_absent = {});
  // An integer of at least 1, at most 10^9.
  std::int64_t count(const char* key, std::optional<std::int64_t> if_absent = {});
  double number(const char* key, const Range& range, std::optional<double> if_absent = {});
  bool flag(const char* key, bool if_absent);
  JsonFields object(const char* key);
  std::vector<JsonFields> list(const char* key);  // a list of objects, not empty

  bool has(const char* key);
  // Throws if the object has a key that was not read.
  void done() const;

 private:
  const Json* find(const char* key);
  const Json& get(const char* key);

  const Json* object_;
  std::string place_;
  std::set<std::string> read_;
};

}  // namespace ringside::planning
