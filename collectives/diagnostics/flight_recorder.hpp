// The flight recorder: the last calls of a rank and the progress of each, for the time after a
// failure.
//
// It is a ring buffer in plain memory. It writes a file, RANK.flight (of a sub-group:
// NAME.RANK.flight), when a call fails and when the process receives SIGUSR1. All ranks of the job
// share the folder. `ringside postmortem FOLDER` reads the files of all ranks and says which rank
// diverged or stopped, and where. Writing allocates nothing and takes no lock. So it works in a
// signal handler, and in a process that is stuck outside of the collectives.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/fork.hpp"
#include "collectives/call.hpp"

namespace ringside::collectives {

// The record of a call. Its readers are the files of the recorder, and the sentences and positions
// by which a rank tells its user and the others where it stands (execution/watchdog.hpp).
struct FlightEntry {
  enum State : std::uint32_t { under_way = 1, done, failed };
  std::uint64_t sequence = 0;  // the number of the call, counted from 1; 0: an unused entry
  Call call;
  std::uint32_t state = under_way;
  std::uint32_t step = 0, steps = 0;  // the current step, counted from 0, and the number of steps
  std::int32_t waiting_for = -1;      // the peer whose message it lacks; -1: none
  std::uint64_t bytes_received = 0;
  std::int64_t began_ns = 0, failed_ns = 0;  // since 1970; failed_ns 0: it has not failed
};

// "step 2 (of 0 to 5)"; when all are done, the last one.
std::string step_in_words(std::uint32_t step, std::uint32_t steps);

struct FlightHeader {
  static constexpr std::uint64_t expected_magic = 0x33544c4653474e52;  // "RNGSFLT3"
  std::uint64_t magic = expected_magic;
  std::int32_t rank = 0, size = 1;
  std::int32_t pid = 0;
  std::uint32_t entries = 0;    // how many entries follow, in no particular order
  std::int64_t written_ns = 0;  // since 1970
  std::int32_t blamed = -1;     // the rank of the job that the cause is about; -1: none is known
  char cause[1024] = {};        // why the file was written, in the words of this rank
  char group[1020] = {};        // the name of a sub-group; empty: all ranks of the job
  char mesh[64] = {};           // "dp=2,tp=4"; empty: the job is no mesh
};

// In a sub-group ranks count from 0, so its name lists its members' ranks in the job:
// "split1.color0@2,3" is "split1.color0 (ranks 2,3 of the job)". Of a large group, in words and in
// the name of its files, the first 16.
std::string sub_group_in_words(std::string_view name);
std::vector<int> ranks_of_sub_group(std::string_view name);  // {2, 3}

class FlightRecorder {
 public:
  static constexpr std::size_t capacity = 256;  // calls

  // `folder` is what RINGSIDE_FLIGHT_DIR names; with an empty one nothing is written. It is created
  // with the first file.
  FlightRecorder(int rank, int size, const std::filesystem::path& folder,
                 std::string_view group = {});
  ~FlightRecorder();  // waits for a signal handler that is writing this recorder's file

  // A new call begins. Returns its record, in which the caller notes the progress until end().
  FlightEntry& begin(std::uint64_t sequence, const Call& call, std::uint32_t steps = 0);
  void end(FlightEntry::State state);

  // Of the job, "dp=2,tp=4".
  void set_mesh(std::string_view mesh);

  // Writes the file after a failure. The first cause stays, also if the file is written again;
  // `cause` is cut to the length of the header's field. `blamed` is a rank of the job, or -1 if
  // this rank knows none.
  void write(const char* cause, int blamed = -1) noexcept;

  // Writes the file at the request of a user. Safe in a signal handler on any thread; an entry that
  // changes at that moment may be inconsistent.
  void write_on_request(const char* request) const noexcept;

 private:
  FlightEntry& now() { return entries_[(begun_ + capacity - 1) % capacity]; }
  void write_file(const FlightHeader& header) const noexcept;

  FlightHeader header_;
  std::atomic<bool> failed_ = false;  // header_ has the cause of a failure, and its time
  std::array<FlightEntry, capacity> entries_{};
  std::size_t begun_ = 0;
  const OwnerProcess owner_;
  std::string folder_, file_;  // made in advance: a signal handler may not allocate
};

// The content of one rank's file, with the entries in the order of their calls.
struct Flight {
  FlightHeader header;
  std::vector<FlightEntry> entries;
};

// Reads a folder, or a file of JSON, in the order of groups and ranks. Of the files of several jobs
// in a folder it reads those of the last one; `left_out` becomes a paragraph about the others.
// Throws Error that names a file which is not a flight recorder's, or is cut off.
//
// JSON is what the Python package makes of PyTorch's records (python/ringside/lab/flights.py).
// Ranks and messages (collective "send", from `root` to `peer`) count as in FlightHeader and Call:
//
//     {"flights": [{"rank": 0, "size": 4, "group": "mesh_tp@0,1,4,5", "calls": [
//         {"number": 12, "collective": "all_reduce", "count": 1024, "type": "bf16", "ended": false,
//          "label": "", "began_ns": 0, "root": 0, "peer": 0, "waiting_for": -1}]}]}
std::vector<Flight> read_flights(const std::filesystem::path& path,
                                 std::string* left_out = nullptr);

// Whether a path is a folder with files of flight recorders.
bool has_flights(const std::filesystem::path& folder);

// What happened, in words: a paragraph that says which rank diverged or stopped, and where; then a
// line for each rank, and for each rank of the sub-groups in which a call was under way.
std::string postmortem(const std::vector<Flight>& flights);

}  // namespace ringside::collectives
