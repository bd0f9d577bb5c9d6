// Which meshes a model fits on, and how fast each would be.
#pragma once

#include <vector>

#include "planning/account.hpp"

namespace ringside::planning {

struct FitOptions {
  std::int64_t devices = 8;
  std::int64_t batch = 8;  // sequences of a step, over all ranks
  std::int64_t sequence = 1024;
  Types types = {};
};

struct Fit {
  std::int64_t tried = 0;         // plans that divide the model, the batch and the devices
  std::vector<Account> accounts;  // those that fit, the fastest first
  double least_memory = 0;        // of all plans: bytes of the rank that needs most
};

// Tries every mesh of dp, fsdp, tp and pp; micro-batches of 1, 2, 4, ...; ZeRO stages 0 to 2; each
// recomputation; every schedule of a pipeline, the interleaved one with 2 and 4 chunks; and tensor
// parallel with and without sequence parallel. Tensor parallel stays within the innermost level of
// the network. The best plan of each mesh is kept.
Fit fit(const Model& model, const Machine& machine, const FitOptions& options);

}  // namespace ringside::planning
