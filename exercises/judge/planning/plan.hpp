// Plan: how a model's state is divided, as formulas of memory need it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel/mesh_shape.hpp"

namespace ringside::planning {

using parallel::Axis;
using parallel::MeshShape;

// Bytes of one number.
struct Types {
  double parameters = 2, gradients = 2, activations = 2;
  bool adamw = true;
  // fp32 copies of 16-bit parameters, which the optimizer updates.
  double masters() const { return parameters < 4 ? 4 : 0; }
  // AdamW: two numbers, at least in fp32. SGD keeps nothing.
  double moments() const { return adamw ? 2 * std::max(4.0, parameters) : 0; }
  double state() const { return parameters + gradients + masters() + moments(); }
};

struct Plan {
  MeshShape mesh = {};  // dp and fsdp are both data parallel; fsdp shards the parameters
  int zero = 0;         // stage of ZeRO; fsdp without a stage is stage 3

  // ZeRO divides the state over the axis fsdp, or dp in a mesh without it, and over cp, whose ranks
  // hold the same parameters. In a mesh with fsdp the ranks of dp hold copies of its shards.
  bool has_fsdp() const { return mesh.size(Axis::fsdp) > 1; }
  std::int64_t state_ranks() const {
    return mesh.size(has_fsdp() ? Axis::fsdp : Axis::dp) * mesh.size(Axis::cp);
  }
  int stage() const { return zero == 0 && has_fsdp() ? 3 : zero; }
};

}  // namespace ringside::planning
