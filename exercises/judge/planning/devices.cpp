#include "exercises/judge/planning/devices.hpp"

namespace ringside::planning {

Term feed_forward_activations(const Quantity& tokens, const Quantity& width, const Quantity& inner,
                              const Quantity& bytes, const Quantity& tensor_ranks) {
  return {"A_block", "activations of a block, for one micro-batch: the inputs of both matrices",
          tokens * bytes * (width + inner / tensor_ranks), Unit::bytes,
          "Stanford CS336, assignment 2"};
}

Term devices_for_state(const Quantity& state, const Quantity& memory) {
  return {"N", "devices that hold the state, and nothing else", ceil(state / memory), Unit::devices,
          "Stanford CS336, assignment 2, question (a)"};
}

Term fsdp_bytes(const Quantity& state, const Quantity& activations, const Quantity& devices) {
  return {"M", "memory of a device", (state + activations / 2) / devices + activations / 2,
          Unit::bytes, "Stanford CS336, assignment 2, question (b)"};
}

Term fsdp_devices(const Quantity& state, const Quantity& activations, const Quantity& memory) {
  return {"N", "devices under FSDP", ceil((state + activations / 2) / (memory - activations / 2)),
          Unit::devices, "Stanford CS336, assignment 2, question (b)"};
}

}  // namespace ringside::planning
