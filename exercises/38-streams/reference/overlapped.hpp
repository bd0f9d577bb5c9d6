// Chunks of the host's memory go through a GPU: copies in both directions run beside the kernel.
#pragma once

#include <vector>

#include "exercises/judge/gpu/streams.hpp"

namespace ringside::gpu {

// Sends chunks 0 .. chunks - 1 through the device, which has `slots` slots, and returns when all
// are back. A stream for each direction and one for kernels; events hand a slot from one to the
// next.
inline void process(Device& device, int chunks, int slots) {
  device.pin_host_memory();
  const int in = device.new_stream(), kernels = device.new_stream(), out = device.new_stream();
  std::vector<int> came, computed, left;
  for (int slot = 0; slot < slots; ++slot) {
    came.push_back(device.new_event());
    computed.push_back(device.new_event());
    left.push_back(device.new_event());
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int slot = chunk % slots;
    device.wait(in, left[slot]);  // of the chunk before in this slot
    device.copy_in(in, slot, chunk);
    device.record(came[slot], in);
    device.wait(kernels, came[slot]);
    device.run_kernel(kernels, slot);
    device.record(computed[slot], kernels);
    device.wait(out, computed[slot]);
    device.copy_out(out, slot, chunk);
    device.record(left[slot], out);
  }
  device.synchronize(out);
}

}  // namespace ringside::gpu
