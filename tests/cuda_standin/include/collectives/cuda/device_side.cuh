// Replaces collectives/cuda/device_side.cuh on the stand-in: MEMORY and TEAM of a block of one
// thread. The flags are the host's atomics.
#pragma once

#include <thread>

#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives::cuda {

struct DeviceSide : one_sided::HostSide {
  // There are more blocks than cores. But a block looks at its clock only once in 1,000 polls: on a
  // busy machine, where a yield takes tens of milliseconds, that many would outlast a deadline.
  static void pause() {
    thread_local int polls = 0;
    if (++polls % 100 == 0) std::this_thread::yield();
  }
};

struct Block {
  int thread, threads;
  int index() const { return thread; }
  int count() const { return threads; }
  void sync() const {}
  bool any(bool lost) const { return lost; }
};

}  // namespace ringside::collectives::cuda
