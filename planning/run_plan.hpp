// RunPlan: a training run as planning/ accounts for it.
#pragma once

#include <string>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "planning/memory.hpp"
#include "training/mesh/mesh_plan.hpp"
#include "training/trainer.hpp"

namespace ringside::planning {

// `strategy` is a value of --parallel, `bucket_mb` its buckets in 10^6 bytes. A strategy from a
// library counts as one that shards nothing. Without a mesh all ranks are data ranks.
Plan run_plan(const training::TrainerOptions& options, autograd::DType dtype,
              autograd::Device device, int data_ranks, const std::string& strategy,
              double bucket_mb, const training::MeshPlan* mesh = nullptr);

}  // namespace ringside::planning
