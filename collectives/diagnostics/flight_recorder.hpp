// The flight recorder: what a rank's last calls were and how far each came, for when something has
// gone wrong.
//
// A ring buffer of plain memory. It is written to a file, RANK.flight (of a sub-group:
// NAME.RANK.flight) in a folder that all ranks of the job share, when a call fails, when the
// process gets SIGUSR1, and on request; `ringside postmortem FOLDER` reads all ranks' files and
// says who diverged, or stopped, where. Writing allocates nothing and takes no lock, so it works in
// a signal handler, and in a process that is stuck outside of the collectives.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call.hpp"

namespace ringside::collectives {

struct FlightEntry {
  enum State : std::uint32_t { under_way = 1, done, failed };
  std::uint64_t sequence = 0;  // of the call, counted from 1; 0: this place has not been used
  Call call;
  std::uint32_t state = under_way;
  std::uint32_t step = 0, steps = 0;  // the step it is in, and how many there are
  std::int32_t waiting_for = -1;      // the peer whose message it lacks; -1: nobody's
  std::uint64_t bytes_received = 0;
  std::int64_t began_ns = 0, ended_ns = 0;  // since 1970; ended_ns 0: not yet
};

struct FlightHeader {
  static constexpr std::uint64_t expected_magic = 0x32544c4653474e52;  // "RNGSFLT2"
  std::uint64_t magic = expected_magic;
  std::int32_t rank = 0, size = 1;
  std::int32_t pid = 0;
  std::uint32_t entries = 0;    // that follow, in no particular order
  std::int64_t written_ns = 0;  // since 1970
  char cause[512] = {};         // what went wrong, as this rank told it
  char group[64] =
      {};  // the name of a sub-group, whose ranks these are; empty: all ranks of the job
};

class FlightRecorder {
 public:
  static constexpr std::size_t capacity = 256;  // calls

  // Nothing is written while `folder` is empty. It is made when the first file is.
  FlightRecorder(int rank, int size, const std::filesystem::path& folder,
                 std::string_view group = {});
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // A new call begins; what is told next belongs to it.
  void begin(std::uint64_t sequence, const Call& call, std::uint32_t steps);
  void progress(std::uint32_t step, std::int32_t waiting_for, std::uint64_t bytes_received);
  void end(FlightEntry::State state);

  // Writes the file, replacing an older one. `cause` is cut to what the header holds. Safe in a
  // signal handler.
  void write(const char* cause) noexcept;

 private:
  FlightEntry& now() { return entries_[(begun_ + capacity - 1) % capacity]; }

  FlightHeader header_;
  std::array<FlightEntry, capacity> entries_{};
  std::size_t begun_ = 0;
  std::string folder_, file_;  // made beforehand: a signal handler may not allocate
};

// The folder that RINGSIDE_FLIGHT_DIR names; empty if it is unset.
std::filesystem::path flight_folder_from_environment();

// What one rank's file holds, its entries in the order of their calls.
struct Flight {
  FlightHeader header;
  std::vector<FlightEntry> entries;
};

// Reads all files of a folder, in the order of groups and ranks. Throws Error naming the file that
// is none, or is cut off.
std::vector<Flight> read_flights(const std::filesystem::path& folder);

// What happened, in words: a line for each rank, and a last paragraph that says who diverged or
// stopped where.
std::string postmortem(const std::vector<Flight>& flights);

}  // namespace ringside::collectives
