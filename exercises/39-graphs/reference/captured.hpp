// A training whose step is captured once, as a graph, and replayed for every batch.
#pragma once

#include <vector>

#include "exercises/judge/gpu/graphs.hpp"

namespace ringside::gpu {

// Trains `layers` layers for `steps` steps and returns when all is done. A step forks: gradients
// are reduced in a stream of their own while backward goes on, and join before the update. What
// changes from step to step is copied to the device before the replay.
inline void train(TrainingDevice& device, int layers, int steps) {
  const int compute = device.new_stream(), network = device.new_stream();
  const int ready = device.new_event(), reduced = device.new_event();
  for (int layer = 0; layer < layers; ++layer) device.allocate_gradient(layer);

  device.begin_capture(compute);
  for (int layer = 0; layer < layers; ++layer) device.forward(compute, layer);
  for (int layer = layers - 1; layer >= 0; --layer) {
    device.backward(compute, layer);
    device.record(ready, compute);
    device.wait(network, ready);
    device.reduce(network, layer);
  }
  device.record(reduced, network);
  device.wait(compute, reduced);
  for (int layer = 0; layer < layers; ++layer) device.update(compute, layer);
  const int step = device.end_capture(compute);

  for (int n = 0; n < steps; ++n) {
    device.copy_batch(compute, n);
    device.copy_rate(compute, n);
    device.replay(step, compute);
  }
  device.synchronize(compute);
}

}  // namespace ringside::gpu
