// Polling for a moment before going to sleep.
//
// A sleep costs two system calls and a wake-up, some 10 microseconds; a message often arrives
// sooner. A loop that never gives up its core would keep it from the very peer that must send the
// message, where there are more ranks than cores. So the loop yields the core between two polls.
#pragma once

#include <functional>

#include "base/clock.hpp"

namespace ringside::collectives {

class SpinThenYield {
 public:
  // Calls `done` repeatedly for about 50 microseconds, or until the deadline if that is sooner.
  // Returns whether it returned true.
  bool until(const Deadline& deadline, const std::function<bool()>& done);

 private:
  int sleeps_at_once_ = 0;
};

}  // namespace ringside::collectives
