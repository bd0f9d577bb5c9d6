// How many devices the course's model needs: blocks of two matrices, under FSDP.
//
// Symbols: T tokens, d width, f inner width, e bytes of a number, t ranks of tensor parallel, N
// devices.
//
// Source: Stanford CS336, assignment 2, communication accounting, questions (a) and (b).
#pragma once

#include "exercises/judge/planning/quantity.hpp"

namespace ringside::planning {

// What the two matrices of a block keep for backward: their inputs. Of the gradients that backward
// makes, none is kept.
Term feed_forward_activations(const Quantity& tokens, const Quantity& width, const Quantity& inner,
                              const Quantity& bytes, const Quantity& tensor_ranks);

// Devices that hold the whole state, if it is divided evenly and nothing else is there.
Term devices_for_state(const Quantity& state, const Quantity& memory);

// Bytes that each of N devices needs under FSDP: the state over N; half of the activations of its
// tokens over N, and half of them whole.
Term fsdp_bytes(const Quantity& state, const Quantity& activations, const Quantity& devices);

// The least N for which that fits into the memory of a device.
Term fsdp_devices(const Quantity& state, const Quantity& activations, const Quantity& memory);

}  // namespace ringside::planning
