// Polling for a moment before going to sleep.
//
// A sleep and a wake-up take some 10 microseconds; a message often arrives sooner. The loop yields
// the core between two polls: the very peer that must send the message may need it.
#pragma once

#include <functional>

#include "base/clock.hpp"

namespace ringside::collectives {

class SpinThenYield {
 public:
  // Calls `done` for so long or until the deadline. Returns whether it returned true.
  bool until(const Deadline&, const std::function<bool()>& done, Seconds longest = Seconds(5e-5));

 private:
  int sleeps_at_once_ = 0;
};

}  // namespace ringside::collectives
