// Plan: what a run trains and how its ranks divide the work, the same on every rank.
//
//     training::Plan plan;
//     plan.config = transformer::named_config("tiny");
//     plan.options.accumulate = 4;                          // the pipeline's micro-batches
//     plan.divide("pp=2,dp=2,tp=2");
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "training/mesh/mesh_plan.hpp"
#include "training/state/saved_run.hpp"
#include "training/trainer.hpp"
#include "transformer/config.hpp"

namespace ringside::training {

struct Plan {
  transformer::Config config;
  autograd::DType dtype = autograd::DType::fp32;
  autograd::Device device = autograd::Device::cpu;
  TrainerOptions options;
  std::string strategy = "bucketed";  // of the data ranks: see strategy_names()
  double bucket_mb = 25;              // of the strategies with buckets, in 10^6 bytes
  std::optional<MeshPlan> mesh;       // none: all ranks are data ranks
  std::filesystem::path init;  // the checkpoint to start from; empty: initialise the parameters
  std::optional<SavedRun> resumed;  // the run in `init`, if this run continues it
  // The last step of this run, as if interrupted there.
  std::int64_t stop_at = std::numeric_limits<std::int64_t>::max();

  // Arranges the ranks in a mesh such as "pp=2,dp=2,tp=2". The schedule of a pipeline is for
  // options.accumulate micro-batches, so set that first (plan_schedule).
  void divide(const std::string& axes, const std::string& schedule = "1f1b",
              int stages_per_rank = 0) {
    mesh = MeshPlan{parallel::MeshShape(axes)};
    plan_schedule(*mesh, schedule, options.accumulate, stages_per_rank);
  }

  // The ranks that divide the batch among them.
  int data_ranks(int ranks) const { return mesh ? mesh->data_ranks() : ranks; }
  bool divides_model() const { return mesh && mesh->divides_model(); }

  // The run takes the steps after first_step(), up to and including last_step().
  std::int64_t first_step() const { return resumed ? resumed->step : 0; }
  std::int64_t last_step() const { return std::min(stop_at, options.steps); }
};

}  // namespace ringside::training
