// Where the ranks of a job that runs are, by records that they have just written (SIGUSR1).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/diagnostics/wait_graph.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

// One file of a folder, as read_flights() reads all. Throws Error.
Flight read_flight(const std::filesystem::path& path);

// Whether the name of a record's group lists all its ranks, or it is the whole job.
bool knows_ranks_of_job(const FlightHeader& header);

// How to name the ranks of a record's group. By its own numbers, and without coordinates, if its
// name does not list all its ranks.
RankNames names_in(const FlightHeader& header);

// How to name the ranks of the job that left these records.
RankNames names_of_job(const std::vector<Flight>& flights);

// One rank, by its numbers in the job.
struct RankStatus {
  int rank = 0;
  bool in_call = false;  // otherwise `call` is the last that it ended
  std::string call;      // "#52 of split1.color0 (ranks 2,3 of the job), all_reduce of 100 fp32"
  std::uint32_t step = 0, steps = 0;
  double seconds = 0;  // since the call began; in no call: since the last one began
  int waits_for = -1;  // the rank whose message it lacks; -1: none
};

// `flights` as read_flights() returns them. One line for each rank that left a record, in the order
// of ranks: of all its groups, the call in which it is, or the last one that it ended.
std::vector<RankStatus> status_of_ranks(const std::vector<Flight>& flights);

// Who waits for whom in the calls under way, or that failed, for at least `seconds`; without groups
// that count their ranks in their own way.
WaitGraph waits_in(const std::vector<Flight>& flights,
                   double seconds = -std::numeric_limits<double>::infinity());

}  // namespace ringside::collectives
