// The figures of `ringside bench mesh`: what each mesh sends and holds, beside the formulas, as a
// table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/training/step_bench.hpp"
#include "cli/bench/training/step_options.hpp"
#include "cli/pictures/json_file.hpp"
#include "training/mesh/mesh_plan.hpp"
#include "training/trainer.hpp"

namespace ringside::cli {

// Memory of the ranks with one pp coordinate. Without a pipeline these are all ranks.
struct MeshMemory {
  double held = 0;         // parameters, gradients and the state of AdamW; the mean of the ranks
  double activations = 0;  // the peak, on the rank with the largest
};

// Bytes that a rank sends along each axis in a step, the mean of the ranks, and holds.
struct MeshBytes {
  double tp = 0, dp = 0, pp = 0;
  std::vector<MeshMemory> memory;  // [pp coordinate]

  double mean_held() const;
  double largest_activations() const;
};

// The trainer's options for `batch` sequences of `sequence` tokens in a step of all data ranks
// together. A pipeline divides a data rank's share into its schedule's micro-batches.
training::TrainerOptions options_on(const training::MeshPlan& plan, std::int64_t batch,
                                    std::int64_t sequence);

// By the formulas, in fp32. `inner` is the data-parallel strategy. Padding of shards and the few
// numbers of the norm and the loss are left out. Activations are those of the estimate that is made
// before a run (planning/memory.hpp).
MeshBytes mesh_formula(const training::MeshPlan& plan, const transformer::Config& config,
                       const std::string& inner, const training::TrainerOptions& options,
                       autograd::Device device = autograd::Device::cpu);

struct MeshFigures : StepFigures {
  training::MeshPlan plan;
  MeshBytes bytes, formula;
  double loss = 0;  // of the last step
};

// A mesh that cannot train the model, and why.
struct MeshLeftOut {
  std::string mesh, why;
};

// At most 80 columns. `run.batch` is that of all ranks together.
std::string mesh_table(const BenchRun& run, const std::string& inner,
                       const std::vector<MeshFigures>& all,
                       const std::vector<MeshLeftOut>& left_out);
Json to_json(const BenchRun& run, const std::string& inner, const std::vector<MeshFigures>& all);

}  // namespace ringside::cli
