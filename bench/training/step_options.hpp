// What the benches of a training step measure (`ringside bench ddp`, `zero`, `mesh` and `train`),
// how they describe it, and how they write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launcher/ranks.hpp"
#include "cli/options/device_option.hpp"
#include "cli/pictures/command_result.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/process_group.hpp"
#include "training/plan/plan.hpp"

namespace ringside::cli {

struct StepOptions {
  std::string model = "lab", dtype = "fp32";
  std::int64_t batch = 2, sequence = 256;  // of each rank
  int steps = 9;                           // measured ones
  std::string json;                        // empty: none
  RanksOption ranks{.count = {}, .otherwise = 2};
  std::vector<std::string> backends{"auto"};
  DeviceOption device;
  std::optional<int> threads;  // of each rank
  std::optional<double> memory_limit_gb;

  // A plan for so many ranks, with a model for at least `sequence` tokens. Throws Error if there is
  // no such model, or no such device here.
  training::Plan plan(int rank_count, const std::string& strategy) const;
};

// A run with as many threads as this process computes on; without a group on one rank.
struct BenchRun {
  // "tiny: 857k parameters on 3 ranks over shm; batch 1 x 32 each, fp32, AdamW, 1 thread each"
  std::string title;
  Facts facts;  // for each row in JSON
};
BenchRun describe_run(const StepOptions& options, const collectives::ProcessGroup* group = nullptr);

}  // namespace ringside::cli
