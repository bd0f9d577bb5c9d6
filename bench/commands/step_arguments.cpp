#include "bench/commands/step_arguments.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "cli/options/strategy_name.hpp"
#include "collectives/exchange/algorithm_file.hpp"
#include "planning/run_plan.hpp"
#include "training/memory_check.hpp"
#include "training/product_calibration.hpp"

namespace ringside::cli {

void add_step_options(const Options& option, StepOptions& options) {
  option("--model NAME", options.model,
         fmt::format("The model's size: {}", fmt::join(transformer::config_names(), ", ")));
  option("--batch N", options.batch, "Sequences per step and rank", at_least_one("sequence"));
  option("--sequence N", options.sequence, "Tokens per sequence", at_least_one("token"));
  option("--steps N", options.steps, "Number of measured steps", at_least_one("step"));
  add_json_option(option, options.json);
}

void add_ranks_of_steps_options(const Options& option, StepArguments& args) {
  add_step_options(option, args);
  add_ranks_option(option, args.ranks);
  add_link_option(option);
  add_algorithm_option(option);
  add_device_option(option, args.device);
  add_device_backend_option(option, args.device);
  option("--threads N", args.threads, "Threads of each rank [cores divided by ranks]",
         at_least_one("thread"));
  add_memory_limit(option, args.memory_limit_gb);
}

void add_strategies_options(const Options& option, StepArguments& args,
                            std::vector<std::string>& strategies, bool lossy) {
  add_ranks_of_steps_options(option, args);
  add_backends_option(option, args.backends);
  option(
      "--strategies NAME,...", strategies,
      fmt::format("Parallel strategies to measure{}",
                  lossy ? ". With fewer bytes, and not the same numbers: bf16_wire, powersgd:RANK, "
                          "local_sgd:STEPS, diloco:STEPS"
                        : ""),
      lossy ? strategy_name(strategies) : one_of(strategies));
}

void add_dtype_option(const Options& option, std::string& dtype) {
  option("--dtype TYPE", dtype, "fp32, or bf16: storage in 16 bits, sums in fp32",
         one_of({"fp32", "bf16"}));
}

void run_on_step_ranks(const StepArguments& args, const MemoryEstimates& memory,
                       const std::string& advice,
                       const std::function<void(std::span<collectives::ProcessGroup>)>& body) {
  require_processes_for(args.device, args.backends, args.ranks.wanted());
  const auto check = [&](int ranks, int ranks_here) {
    const autograd::Device device = device_from(args.device, autograd::dtype_named(args.dtype));
    // On a GPU each rank checks its own memory, not the launcher.
    if (device == autograd::Device::cuda && !environment("RANK")) return;
    for (const planning::RankMemory& need : memory(ranks, device))
      training::require_memory(planning::need_of(need), ranks_here, args.memory_limit_gb, advice,
                               device);
  };
  const auto run = [&](std::span<collectives::ProcessGroup> groups, int ranks_here) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    training::begin_computing(args.threads.value_or(std::max(1, cores / ranks_here)));
    begin_on_device(args.device, groups);
    body(groups);
    for (collectives::ProcessGroup& group : groups) group.finish();
  };
  collectives::load_algorithms();
  run_on_ranks(args.ranks, args.backends, run, check);
}

}  // namespace ringside::cli
