// Where a rank is: what it tells the others while it waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "collectives/call.hpp"
#include "collectives/diagnostics/call_history.hpp"

namespace ringside::collectives {

struct Position {
  std::uint64_t sequence = 0;  // the number of the call that it is in
  Call call;
  std::uint32_t step = 0;
  std::int32_t waiting_for = -1;  // the peer whose message it lacks
  Clock::time_point heard{};      // when this rank was told
  CallHistory made;               // its collectives so far, as far as it has told them

  // A rank that waits tells its position at this interval. A rank that has told nothing for three
  // intervals does not wait in a collective.
  static constexpr Seconds every{0.5};
  bool recent() const { return heard != Clock::time_point{} && Clock::now() - heard < 3 * every; }
};

inline bool all_recent(const std::vector<Position>& positions) {
  return std::all_of(positions.begin(), positions.end(),
                     [](const Position& position) { return position.recent(); });
}

}  // namespace ringside::collectives
