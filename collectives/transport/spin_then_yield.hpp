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
  explicit SpinThenYield(Seconds longest = Seconds(50e-6)) : longest_(longest) {}

  // Calls `done` until it returns true, for `longest` or until the deadline. Returns whether it
  // did.
  bool until(const Deadline& deadline, const std::function<bool()>& done);

 private:
  Seconds longest_;
  int sleeps_at_once_ = 0;
};

}  // namespace ringside::collectives
