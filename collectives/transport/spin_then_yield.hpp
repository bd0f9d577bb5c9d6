// Polling for a moment before going to sleep.
//
// A sleep costs two system calls and a wake-up, some 10 microseconds; a message often arrives
// sooner. A loop that never gives up its core would keep it from the very peer that must send the
// message, where there are more ranks than cores. So the loop yields the core between two polls.
#pragma once

#include <sched.h>

#include "base/clock.hpp"

namespace ringside::collectives {

class SpinThenYield {
 public:
  // Calls `done` repeatedly for about 50 microseconds. Returns whether it returned true.
  template <class Done>
  bool until(Done done) {
    if (sleeps_at_once_ > 0) return --sleeps_at_once_, false;
    const auto start = Clock::now();
    double waited = 0;
    while (waited <= longest.count()) {
      if (done()) return true;
      ::sched_yield();
      waited = seconds_since(start);
    }
    // If the core came back late, a process outside of this job used it. Sleeping is better for a
    // while then: the kernel prefers threads that wake up.
    if (waited > 10 * longest.count()) sleeps_at_once_ = sleeps_after_a_late_return;
    return false;
  }

 private:
  static constexpr Seconds longest{50e-6};
  static constexpr int sleeps_after_a_late_return = 100;
  int sleeps_at_once_ = 0;
};

}  // namespace ringside::collectives
