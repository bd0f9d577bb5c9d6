#include "collectives/transport/spin_then_yield.hpp"

#include <algorithm>

#include <sched.h>

namespace ringside::collectives {

bool SpinThenYield::until(const Deadline& deadline, const std::function<bool()>& done,
                          Seconds longest) {
  constexpr int sleeps_after_a_late_return = 100;
  if (sleeps_at_once_ > 0) return --sleeps_at_once_, false;
  const auto start = Clock::now();
  const double patience = std::min(longest, deadline.remaining()).count();
  double waited = 0;
  for (;;) {
    if (done()) return true;
    waited = seconds_since(start);
    if (waited >= patience) break;
    ::sched_yield();
  }
  // If the core came back late, a process outside of this job used it. Sleeping is better for a
  // while then: the kernel prefers threads that wake up.
  if (waited > 10 * longest.count()) sleeps_at_once_ = sleeps_after_a_late_return;
  return false;
}

}  // namespace ringside::collectives
