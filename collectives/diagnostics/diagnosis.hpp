// Diagnosis: which ranks a hang comes from, by the flight records of all ranks.
//
// Who waits is innocent. The cause is a rank that made another call, that did not come to a call,
// or that left no record; or ranks that wait for each other's messages in a circle:
//
//     rank 0   #1 all_reduce  #2 all_reduce  #3 waits             divergence    call 2: ranks 0, 2
//     rank 1   #1 all_reduce  #2 broadcast   #3 waits                           made one, rank 1
//     rank 2   #1 all_reduce  #2 all_reduce  #3 waits                           another
//
//     rank 0   #1 all_reduce  #2 waits                            laggards      call 2: rank 1
//     rank 1   #1 all_reduce  done                                              has not come to it
//
// `flights` are those of one group, in the order of ranks. Their entries are in the order in which
// the calls began; a recorder keeps the last 256, so the records of two ranks may begin with
// different calls. Calls of send and recv are entries too, but each pair of ranks numbers its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::collectives {

// The first collective call in which the ranks differ.
struct Divergence {
  std::uint64_t sequence = 0;
  std::map<std::string, std::vector<int>> made;  // [the call in words] the ranks that made it
};
// Compares the calls of the same number, in the words of describe(). None if all that are in the
// records agree.
std::optional<Divergence> divergence(const std::vector<Flight>& flights);

// Ranks that made the same calls as the others, but have not come to the last one.
struct Laggards {
  std::uint64_t sequence = 0;  // of the furthest collective call of any rank
  std::vector<int> ranks;      // whose last collective call is an earlier one
};
// None if all are equally far. A rank without entries has come to no call.
std::optional<Laggards> laggards(const std::vector<Flight>& flights);

// The ranks of the group that left no record.
std::vector<int> without_record(const std::vector<Flight>& flights);

// Ranks that wait for each other in a circle: each is in a send or recv, not done, that waits for
// the next one, and the last waits for the first. Begins with the lowest rank; empty if there is
// none.
std::vector<int> circle(const std::vector<Flight>& flights);

}  // namespace ringside::collectives
