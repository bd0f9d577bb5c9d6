// Plan: what a run trains, how its ranks divide the work, and what it writes.
//
//     training::Plan plan;
//     plan.config = transformer::named_config("tiny");
//     plan.options.accumulate = 4;                          // the pipeline's micro-batches
//     plan.divide("pp=2,dp=2,tp=2");
//
// `ringside train` fills a plan by the table of options (options.hpp), and complete() chooses what
// the user has not given (prepare.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "training/mesh/mesh_plan.hpp"
#include "training/state/saved_run.hpp"
#include "training/trainer.hpp"
#include "transformer/config.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/inference/generation.hpp"

namespace ringside::training {

using StepRange = std::pair<std::int64_t, std::int64_t>;  // the first and the last

struct Plan {
  // The options that the user has given: "--lr". complete() leaves them as they are.
  std::set<std::string> given;
  bool has(const std::string& option) const { return given.contains(option); }

  // The model. Its name is for people: a size of named_config(), "custom", or a checkpoint's
  // folder.
  std::string model = "tiny";
  transformer::Config config;
  autograd::DType dtype = autograd::DType::fp32;
  std::filesystem::path init;    // the checkpoint to start from; empty: initialise the parameters
  std::filesystem::path resume;  // the folder of the run that this one continues
  std::optional<SavedRun> resumed;  // that run
  bool accept_changes = false;      // of a checkpoint's files since it was saved

  // The ranks.
  std::string strategy = "bucketed";  // of the data ranks: see strategy_names()
  double bucket_mb = 25;              // of the strategies with buckets, in 10^6 bytes
  MeshPlan mesh;
  autograd::Device device = autograd::Device::cpu;
  std::string device_backend = "cuda_ipc";  // between GPUs
  int threads = 1;                          // of each rank
  // In 10^9 bytes, for all ranks on this machine. 0: do not check; -1: the available memory.
  double memory_limit_gb = -1;

  // The training.
  std::vector<std::filesystem::path> data;  // empty: the default corpus
  std::shared_ptr<const transformer::Vocabulary> vocabulary =
      std::make_shared<transformer::Vocabulary>();  // of `data`; never null
  TrainerOptions options;
  // The last step of this run, as if interrupted there.
  std::int64_t stop_at = std::numeric_limits<std::int64_t>::max();
  std::int64_t validation_batches = 0;  // 0: options.validation_windows as they are

  // What it writes. Empty paths: nothing.
  std::filesystem::path metrics, trace, report, dump, save;
  std::optional<StepRange> trace_steps;  // of `trace` and `report`
  std::int64_t dump_every = 1;           // in steps; 0: the first and the last
  bool overwrite = false;                // another run in `save`
  std::int64_t save_every = 0;           // in steps; 0: only at the end
  std::int64_t sample_tokens = 0;        // generated at the end
  std::int64_t sample_every = 0;         // in steps; 0: only at the end
  transformer::SampleOptions sample;

  // Arranges the ranks in a mesh such as "pp=2,dp=2,tp=2". The schedule of a pipeline is for
  // options.accumulate micro-batches, so set that first (plan_schedule).
  void divide(const std::string& axes, const std::string& schedule = "1f1b",
              int stages_per_rank = 0) {
    mesh = MeshPlan{parallel::MeshShape(axes)};
    plan_schedule(mesh, schedule, options.accumulate, stages_per_rank);
  }

  // The ranks that divide the batch among them.
  int data_ranks(int ranks) const { return mesh.given() ? mesh.data_ranks() : ranks; }

  // The run takes the steps after first_step(), up to and including last_step().
  std::int64_t first_step() const { return resumed ? resumed->step : 0; }
  std::int64_t last_step() const { return std::min(stop_at, options.steps); }
};

}  // namespace ringside::training
