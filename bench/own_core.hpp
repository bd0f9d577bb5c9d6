// Where the ranks of a benchmark run when they outnumber the cores.
#pragma once

#include <sched.h>

namespace ringside::cli {

// Binds this thread to one core while it exists, if `ranks` ranks poll on fewer cores, so that
// every core has as many. Left alone, five of six ranks may stay on one of two cores for a second:
// they never sleep, and the kernel does not move a thread that ran within the last half
// millisecond.
class OwnCore {
 public:
  OwnCore(int rank, int ranks);  // of those of this host
  ~OwnCore();
  OwnCore(const OwnCore&) = delete;
  OwnCore& operator=(const OwnCore&) = delete;

 private:
  bool bound_ = false;
  cpu_set_t before_{};
};

}  // namespace ringside::cli
