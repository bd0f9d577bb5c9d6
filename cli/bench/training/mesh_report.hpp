// The figures of `ringside bench mesh`: what each mesh sends and holds, beside the formulas, as a
// table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report/json_file.hpp"
#include "cli/training/mesh/mesh_plan.hpp"

namespace ringside::cli {

// Bytes that a rank sends along each axis in a step, and holds; the mean of the ranks.
struct MeshBytes {
  double tp = 0, dp = 0;
  double held = 0;  // parameters, gradients and the state of AdamW
};

// By the formulas, in fp32, for `batch` sequences in a step of all ranks together. `inner` is the
// data-parallel strategy. Padding of shards and the few numbers of the norm are left out.
MeshBytes mesh_formula(const MeshPlan& plan, const transformer::Config& config,
                       const std::string& inner, std::int64_t batch, std::int64_t sequence);

struct MeshFigures {
  MeshPlan plan;
  double step_seconds = 0, exposed_seconds = 0;  // median over the steps of the slowest rank
  MeshBytes bytes, formula;
  double activations = 0;  // the peak, on the rank with the largest
};

struct MeshBenchTitle {
  std::string model, backend, inner;
  std::int64_t parameters = 0, batch = 0, sequence = 0;
  int ranks = 1, threads = 1;
};

std::string mesh_table(const MeshBenchTitle& title, const std::vector<MeshFigures>& all);
Json to_json(const MeshBenchTitle& title, const std::vector<MeshFigures>& all);

}  // namespace ringside::cli
