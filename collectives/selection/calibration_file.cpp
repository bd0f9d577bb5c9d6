#include "collectives/selection/calibration_file.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/warn.hpp"

namespace ringside::collectives {
namespace {

namespace fs = std::filesystem;

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

bool matches(const Json& entry, const Json& key) {
  for (const auto& [name, value] : key.items())
    if (!entry.contains(name) || entry.at(name) != value) return false;
  return true;
}

// The entries of the file; none if it does not exist. Throws if its content is invalid.
Json read_entries(const fs::path& path) {
  const auto text = read_if_possible(path);
  if (!text) return Json::array();
  const Json content = Json::parse(*text);
  const Json& entries = content.at("entries");
  require(entries.is_array(), "\"entries\" is not a list");
  return entries;
}

void replace_file(const fs::path& path, const std::string& text) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  try {
    AtomicFile file(path);
    file.write(text);
    file.commit();
  } catch (const Error&) {
    fail(
        "cannot write the calibration to {}: make the folder writable, or set XDG_CACHE_HOME to "
        "another one",
        path.string());
  }
}

}  // namespace

fs::path calibration_file() {
  const fs::path name = fs::path("ringside") / "calibration.json";
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache / name;
  if (const auto home = environment("HOME")) return fs::path(*home) / ".cache" / name;
  return {};
}

CalibrationEntry calibration_key(CalibrationEntry what) {
  what["host"] = host_name();
  what["cores"] = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return what;
}

std::optional<CalibrationEntry> find_calibration(const CalibrationEntry& key) {
  for (const Json& entry : read_entries(calibration_file()))
    if (matches(entry, key)) return entry;
  return std::nullopt;
}

void keep_in_calibration(const std::vector<CalibrationRecord>& records) {
  const fs::path path = calibration_file();
  require(!path.empty(), "there is no folder for the calibration file: set HOME or XDG_CACHE_HOME");
  Json entries = Json::array();
  const auto is_replaced = [&](const Json& entry) {
    return std::any_of(records.begin(), records.end(),
                       [&](const auto& record) { return matches(entry, record.key); });
  };
  try {
    for (const Json& entry : read_entries(path))
      if (!is_replaced(entry)) entries.push_back(entry);
  } catch (const std::exception&) {
    entries = Json::array();  // invalid: write a new file
  }
  for (const auto& record : records) entries.push_back(record.entry);
  replace_file(path, Json{{"entries", entries}}.dump(2) + "\n");
}

std::string fault_of_calibration(const std::exception& error) {
  const bool by_json = dynamic_cast<const JsonError*>(&error) != nullptr;
  return by_json ? "it is not the JSON of a calibration" : error.what();
}

void warn_of_invalid_calibration(const std::string& fault) {
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  warn(
      "{} is invalid ({}), so algorithms and libraries are selected as without a calibration; "
      "ringside bench --calibrate writes a new file",
      calibration_file().string(), fault);
}

}  // namespace ringside::collectives
