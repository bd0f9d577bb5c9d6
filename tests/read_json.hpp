// A JSON file of a test.
#pragma once

#include <filesystem>

#include "base/json.hpp"
#include "base/read_file.hpp"

namespace ringside::tests {

inline Json read_json(const std::filesystem::path& path) {
  return Json::parse(read_file(path));
}

}  // namespace ringside::tests
