#include "cli/commands/bench/step_arguments.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/environment.hpp"
#include "training/memory_check.hpp"
#include "training/product_calibration.hpp"

namespace ringside::cli {

void add_step_options(CLI::App& command, StepOptions& options) {
  command
      .add_option("--model", options.model,
                  fmt::format("The model's size: {}", fmt::join(transformer::config_names(), ", ")))
      ->type_name("NAME")
      ->capture_default_str();
  add_count_option(command, "--batch", options.batch, "sequence", "Sequences per step and rank");
  add_count_option(command, "--sequence", options.sequence, "token", "Tokens per sequence");
  add_count_option(command, "--steps", options.steps, "step", "Number of measured steps");
  add_json_option(command, options.json);
}

void add_ranks_of_steps_options(CLI::App& command, StepArguments& args) {
  add_step_options(command, args);
  add_ranks_option(command, args.ranks);
  add_link_option(command);
  add_device_option(command, args.device);
  add_device_backend_option(command, args.device);
  command.add_option("--threads", args.threads, "Threads of each rank [cores divided by ranks]")
      ->type_name("N")
      ->check(at_least_one("thread"));
  add_memory_limit(command, args.memory_limit_gb);
}

void add_strategies_options(CLI::App& command, StepArguments& args,
                            std::vector<std::string>& strategies) {
  add_ranks_of_steps_options(command, args);
  add_backends_option(command, args.backends);
  command.add_option("--strategies", strategies, "Parallel strategies to measure")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->check(one_of(strategies))
      ->capture_default_str();
}

void add_dtype_option(CLI::App& command, std::string& dtype) {
  command.add_option("--dtype", dtype, "fp32, or bf16: storage in 16 bits, sums in fp32")
      ->type_name("TYPE")
      ->check(one_of({"fp32", "bf16"}))
      ->capture_default_str();
}

void run_on_step_ranks(const StepArguments& args, const StepMemory& memory,
                       const std::string& advice,
                       const std::function<void(std::span<collectives::ProcessGroup>)>& body) {
  require_processes_for(args.device, args.backends, args.ranks.wanted());
  const auto check = [&](int ranks, int ranks_here) {
    const autograd::Device device = device_from(args.device, autograd::dtype_named(args.dtype));
    // On a GPU each rank checks its own memory, not the launcher.
    if (device == autograd::Device::cuda && !environment("RANK")) return;
    for (const planning::RankMemory& need : memory(ranks, device))
      training::require_memory(need, ranks_here, args.memory_limit_gb, advice, device);
  };
  const auto run = [&](std::span<collectives::ProcessGroup> groups, int ranks_here) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    training::begin_computing(args.threads.value_or(std::max(1, cores / ranks_here)));
    begin_on_device(args.device, groups);
    body(groups);
    for (collectives::ProcessGroup& group : groups) group.finish();
  };
  run_on_ranks(args.ranks, args.backends, run, check);
}

}  // namespace ringside::cli
