// JsonFields: reads the fields of a JSON object, and says where in the file a wrong one stands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ringside::planning {

// The content of a JSON file. Throws Error with the path, and the line of a syntax error.
nlohmann::json read_json_file(const std::filesystem::path& path);

// Parses text; `what` names it in errors.
nlohmann::json parse_json(const std::string& text, const std::string& what);

// A field is named by its place: "machine.json: levels[1].gbps". All functions throw Error.
class JsonFields {
 public:
  // `place` is "machine.json: " for the whole file, "machine.json: levels[1]." within it.
  JsonFields(const nlohmann::json& object, std::string place);

  std::string text(const char* key);
  std::string text(const char* key, const std::string& if_absent);
  std::int64_t count(const char* key);  // an integer of at least 1, at most 10^9
  std::int64_t count(const char* key, std::int64_t if_absent);
  double positive(const char* key);  // a number above 0
  double positive(const char* key, double if_absent);
  double not_negative(const char* key);
  double not_negative(const char* key, double if_absent);
  double share(const char* key, double if_absent);          // above 0, at most 1
  double share_or_none(const char* key, double if_absent);  // from 0 to 1
  double at_least_one(const char* key, double if_absent);   // a number of at least 1
  bool flag(const char* key, bool if_absent);
  JsonFields object(const char* key);
  std::vector<JsonFields> list(const char* key);  // a list of objects, not empty

  bool has(const char* key);
  // Throws if the object has a key that was not read.
  void done() const;

 private:
  const nlohmann::json* find(const char* key);
  const nlohmann::json& get(const char* key);
  double number(const char* key, const nlohmann::json& value, const char* expected) const;

  const nlohmann::json* object_;
  std::string place_;
  std::set<std::string> read_;
};

}  // namespace ringside::planning
