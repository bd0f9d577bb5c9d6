#include "cli/launcher/flight_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string_view>

#include <fmt/format.h>

#include "base/environment.hpp"

namespace ringside::cli {
namespace {

using collectives::FlightHeader;

// Whether the user has requested the record with SIGUSR1.
bool is_requested(const FlightHeader& header) {
  return std::string_view(header.cause).starts_with("asked for");
}

// The heads of all records. One that a rank is still writing, or was killed in, is left out.
std::vector<FlightHeader> heads_in(const std::string& folder) {
  std::vector<FlightHeader> heads;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    FlightHeader header;
    std::ifstream file(entry.path(), std::ios::binary);
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    if (file && header.magic == FlightHeader::expected_magic) heads.push_back(header);
  }
  return heads;
}

}  // namespace

FlightFolder::FlightFolder() {
  const bool inside_a_job = environment("RANK").has_value();
  if (environment("RINGSIDE_FLIGHT_DIR") && !inside_a_job) return;
  std::random_device random;
  std::error_code error;
  const auto temporary = std::filesystem::temp_directory_path(error);
  if (!error)
    path_ = (temporary / fmt::format("ringside-flight-{:08x}{:08x}", random(), random())).string();
}

std::vector<FlightHeader> FlightFolder::failures() const {
  std::vector<FlightHeader> heads;
  if (path_) heads = heads_in(*path_);
  std::erase_if(heads, is_requested);
  return heads;
}

bool FlightFolder::keep_or_remove(bool failed) const {
  std::error_code ignored;
  if (!path_ || !std::filesystem::exists(*path_, ignored)) return false;
  const auto heads = heads_in(*path_);
  if (failed || std::ranges::any_of(heads, is_requested)) return true;
  std::filesystem::remove_all(*path_, ignored);
  return false;
}

}  // namespace ringside::cli
