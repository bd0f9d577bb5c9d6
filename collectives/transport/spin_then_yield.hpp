// Waiting for a moment before going to sleep.
//
// A sleep costs two system calls and a wake-up, some 10 microseconds; what is awaited often comes
// sooner. But to spin would keep the core from the very peer that is to bring it, where there are
// more ranks than cores. So between two looks the core is offered to whoever wants it.
#pragma once

#include <sched.h>

#include "base/clock.hpp"
#include "collectives/one_sided/protocol.hpp"

namespace ringside::collectives {

class Look {
 public:
  // Asks `done` again and again for some 50 microseconds. Returns whether it said yes. The first
  // `before_an_offer` times, for a question that costs next to nothing, come without an offer: an
  // answer of a peer that runs takes a fraction of a microsecond.
  template <class Done>
  bool until(Done done, int before_an_offer = 0) {
    for (int i = 0; i < before_an_offer; ++i) {
      if (done()) return true;
      one_sided::HostMemory::pause();
    }
    if (sleeps_at_once_ > 0) return --sleeps_at_once_, false;
    const auto start = Clock::now();
    double waited = 0;
    while (waited <= longest.count()) {
      if (done()) return true;
      ::sched_yield();
      waited = seconds_since(start);
    }
    // A core that was offered and came back only after long went to somebody who has nothing to do
    // with this job. Then it is better to sleep for a time, for the kernel prefers those who wake
    // up.
    if (waited > 10 * longest.count()) sleeps_at_once_ = sleeps_after_a_bad_offer;
    return false;
  }

 private:
  static constexpr Seconds longest{50e-6};
  static constexpr int sleeps_after_a_bad_offer = 100;
  int sleeps_at_once_ = 0;
};

}  // namespace ringside::collectives
