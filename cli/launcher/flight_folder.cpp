#include "cli/launcher/flight_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::cli {
namespace {

bool were_requested(const std::string& folder) {
  try {
    const auto flights = collectives::read_flights(folder);
    return std::any_of(flights.begin(), flights.end(), [](const auto& flight) {
      return std::string_view(flight.header.cause).starts_with("asked for");
    });
  } catch (const Error&) {
    return false;  // a rank was killed while it wrote its record
  }
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

bool FlightFolder::keep_or_remove(bool failed) const {
  std::error_code ignored;
  if (!path_ || !std::filesystem::exists(*path_, ignored)) return false;
  if (failed || were_requested(*path_)) return true;
  std::filesystem::remove_all(*path_, ignored);
  return false;
}

}  // namespace ringside::cli
