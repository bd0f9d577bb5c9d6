// The options of the benches of a training step, and how its ranks start.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/training/step_options.hpp"
#include "cli/options/device_option.hpp"
#include "cli/options/options.hpp"
#include "cli/options/rank_options.hpp"
#include "planning/memory.hpp"

namespace ringside::cli {

struct StepArguments : StepOptions {
  RanksOption ranks{.count = {}, .otherwise = 2};
  std::vector<std::string> backends{"auto"};
  DeviceOption device;
  std::optional<int> threads;  // of each rank
  std::optional<double> memory_limit_gb;
};

// Declares --model, --batch, --sequence, --steps and --json.
void add_step_options(const Options& option, StepOptions& options);

// Declares these, -n, --link, --device, --device-backend, --threads and --memory-limit; --backend
// is left to the bench.
void add_ranks_of_steps_options(const Options& option, StepArguments& args);

// Declares --backend for several backends, and --strategies for some of these strategies, and
// perhaps for those that send fewer bytes.
void add_strategies_options(const Options& option, StepArguments& args,
                            std::vector<std::string>& strategies, bool lossy = false);

// Declares --dtype for fp32 and bf16.
void add_dtype_option(const Options& option, std::string& dtype);

// What a bench needs on each rank, of so many: one estimate for each measurement that it makes.
using MemoryEstimates =
    std::function<std::vector<planning::RankMemory>(int ranks, autograd::Device)>;

// Runs `body` on every rank, with one group for each backend, ready to compute on the device.
// Throws Error with `advice` before that if a rank lacks memory.
void run_on_step_ranks(const StepArguments& args, const MemoryEstimates& memory,
                       const std::string& advice,
                       const std::function<void(std::span<collectives::ProcessGroup>)>& body);

}  // namespace ringside::cli
