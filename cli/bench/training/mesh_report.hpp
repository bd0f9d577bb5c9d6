// The figures of `ringside bench mesh`: what each mesh sends and holds, beside the formulas, as a
// table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report/json_file.hpp"
#include "cli/training/mesh/mesh_plan.hpp"
#include "transformer/trainer.hpp"

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
transformer::TrainerOptions options_on(const MeshPlan& plan, std::int64_t batch,
                                       std::int64_t sequence);

// By the formulas, in fp32. `inner` is the data-parallel strategy. Padding of shards and the few
// numbers of the norm and the loss are left out. Activations are those of the estimate that is made
// before a run (transformer/memory.hpp).
MeshBytes mesh_formula(const MeshPlan& plan, const transformer::Config& config,
                       const std::string& inner, const transformer::TrainerOptions& options,
                       autograd::Device device = autograd::Device::cpu);

struct MeshFigures {
  MeshPlan plan;
  double step_seconds = 0, exposed_seconds = 0;  // median over the steps of the slowest rank
  MeshBytes bytes, formula;
};

// A mesh that cannot train the model, and why.
struct MeshLeftOut {
  std::string mesh, why;
};

struct MeshBenchTitle {
  std::string model, backend, inner;
  std::int64_t parameters = 0, batch = 0, sequence = 0;
  int ranks = 1, threads = 1;
  std::string device = "cpu";
};

// At most 80 columns.
std::string mesh_table(const MeshBenchTitle& title, const std::vector<MeshFigures>& all,
                       const std::vector<MeshLeftOut>& left_out);
Json to_json(const MeshBenchTitle& title, const std::vector<MeshFigures>& all);

}  // namespace ringside::cli
