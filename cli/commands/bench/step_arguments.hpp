// The options of the benches of a training step, and how its ranks start.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/bench/training/step_options.hpp"
#include "cli/commands/options/rank_options.hpp"
#include "cli/commands/training/device_option.hpp"
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
void add_step_options(CLI::App& command, StepOptions& options);

// Declares these, -n, --link, --device, --device-backend, --threads and --memory-limit; --backend
// is left to the bench.
void add_ranks_of_steps_options(CLI::App& command, StepArguments& args);

// Declares --backend for several backends, and --strategies for some of these strategies.
void add_strategies_options(CLI::App& command, StepArguments& args,
                            std::vector<std::string>& strategies);

// Declares an option for a number of things, of which at least one is needed.
template <class Number>
void add_count_option(CLI::App& command, const char* name, Number& value, const char* thing,
                      const char* words) {
  command.add_option(name, value, words)
      ->type_name("N")
      ->check(at_least_one(thing))
      ->capture_default_str();
}

void add_dtype_option(CLI::App& command, std::string& dtype);

// What a bench needs on each rank, of so many: one estimate for each measurement that it makes.
using StepMemory = std::function<std::vector<planning::RankMemory>(int ranks, autograd::Device)>;

// Runs `body` on every rank, with one group for each backend, ready to compute on the device.
// Throws Error with `advice` before that if a rank lacks memory.
void run_on_step_ranks(const StepArguments& args, const StepMemory& memory,
                       const std::string& advice,
                       const std::function<void(std::span<collectives::ProcessGroup>)>& body);

}  // namespace ringside::cli
