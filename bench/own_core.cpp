#include "bench/own_core.hpp"

namespace ringside::cli {

OwnCore::OwnCore(int rank, int ranks) {
  if (::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  const int cores = CPU_COUNT(&before_);
  if (ranks <= cores) return;
  int core = 0;
  for (int left = rank % cores; !CPU_ISSET(core, &before_) || left-- > 0;) ++core;
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  bound_ = ::sched_setaffinity(0, sizeof own, &own) == 0;
}

OwnCore::~OwnCore() {
  if (bound_) ::sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace ringside::cli
