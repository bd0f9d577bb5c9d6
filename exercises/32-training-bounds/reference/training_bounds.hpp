// Times of a training step of a SwiGLU block on N devices, and from when on no device waits.
#pragma once

#include "exercises/32-training-bounds/block.hpp"

namespace ringside::bounds {

// Both passes compute alike however the block is divided: three products forward, six backward.
inline Step computation(Block block, Machine machine, double batch, double devices) {
  const double forward = 6 * batch * block.d * block.f / (devices * machine.flops);
  return {.forward = {.compute = forward}, .backward = {.compute = 2 * forward}};
}

// Data parallel: B/N tokens of a device, an all-reduce of the three gradients in backward.
inline Step data_parallel(Block block, Machine machine, double batch, double devices) {
  Step step = computation(block, machine, batch, devices);
  step.backward.communicate = 2 * 6 * block.d * block.f / machine.bandwidth;
  return step;
}

// FSDP: all-gathers of the three matrices in both passes, a reduce-scatter of their gradients.
inline Step fully_sharded(Block block, Machine machine, double batch, double devices) {
  Step step = computation(block, machine, batch, devices);
  step.forward.communicate = 6 * block.d * block.f / machine.bandwidth;
  step.backward.communicate = 2 * step.forward.communicate;
  return step;
}

// Tensor parallel: F divided by N. An all-gather of x and a reduce-scatter of y forward, of dy and
// dx backward.
inline Step tensor_parallel(Block block, Machine machine, double batch, double devices) {
  Step step = computation(block, machine, batch, devices);
  step.forward.communicate = 2 * 2 * batch * block.d / machine.bandwidth;
  step.backward.communicate = step.forward.communicate;
  return step;
}

// The least B/N with which data parallel, or FSDP, hides all that it sends.
inline double least_tokens(Machine machine) {
  return machine.flops / machine.bandwidth;
}

// The largest N with which tensor parallel hides all that it sends, in both passes.
inline double most_devices(Block block, Machine machine) {
  return 3 * block.f * machine.bandwidth / (2 * machine.flops);
}

// The Y with the smallest B/N, of forward. Overlapped: computing takes as long as the longer of
// both communications; else as long as their sum.
inline Split best_split(Block block, Machine machine, bool overlapped) {
  const double intensity = machine.flops / machine.bandwidth;
  const double tensor = most_devices(block, machine) / (overlapped ? 1 : 2);
  return {.tensor = tensor, .tokens = (overlapped ? 1 : 2) * intensity / tensor};
}

}  // namespace ringside::bounds
