// Replaces collectives/cuda/device_side.cuh on the stand-in: MEMORY and TEAM of a block of one
// thread. The flags are the host's atomics.
#pragma once

#include <thread>

#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives::cuda {

struct DeviceSide : one_sided::HostSide {
  // There are more blocks than cores.
  static void pause() { std::this_thread::yield(); }
};

struct Block {
  int thread, threads;
  int index() const { return thread; }
  int count() const { return threads; }
  void sync() const {}
  bool any(bool lost) const { return lost; }
};

}  // namespace ringside::collectives::cuda
