#include "cli/launcher/flight_folder.hpp"

#include <algorithm>
#include <chrono>
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

}  // namespace

FlightFolder::FlightFolder()
    : began_ns_(
          std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count()) {
  const bool inside_a_job = environment("RANK").has_value();
  if (const auto named = environment("RINGSIDE_FLIGHT_DIR"); named && !inside_a_job) {
    path_ = *named;
    is_users_ = true;
    return;
  }
  std::random_device random;
  std::error_code error;
  const auto temporary = std::filesystem::temp_directory_path(error);
  if (!error)
    path_ = (temporary / fmt::format("ringside-flight-{:08x}{:08x}", random(), random())).string();
}

// One that a rank is still writing, or was killed in, is left out.
std::vector<FlightHeader> FlightFolder::heads() const {
  std::vector<FlightHeader> heads;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
    FlightHeader header;
    std::ifstream file(entry.path(), std::ios::binary);
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    if (file && header.magic == FlightHeader::expected_magic && header.written_ns >= began_ns_)
      heads.push_back(header);
  }
  return heads;
}

std::vector<FlightHeader> FlightFolder::failures() const {
  std::vector<FlightHeader> failed = heads();
  std::erase_if(failed, is_requested);
  return failed;
}

bool FlightFolder::keep_or_remove(bool failed) const {
  const auto records = heads();
  if (!records.empty() && (failed || std::ranges::any_of(records, is_requested))) return true;
  std::error_code ignored;
  if (!is_users_) std::filesystem::remove_all(path_, ignored);
  return false;
}

}  // namespace ringside::cli
