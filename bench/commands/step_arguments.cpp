#include "bench/commands/step_arguments.hpp"

#include <fmt/format.h>

#include "cli/options/rank_options.hpp"
#include "cli/options/strategy_name.hpp"

namespace ringside::cli {

void add_step_options(const Options& option, StepOptions& args) {
  option("--model NAME", args.model,
         fmt::format("The model's size: {}", fmt::join(transformer::config_names(), ", ")));
  option("--batch N", args.batch, "Sequences per step and rank", at_least_one("sequence"));
  option("--sequence N", args.sequence, "Tokens per sequence", at_least_one("token"));
  option("--steps N", args.steps, "Number of measured steps", at_least_one("step"));
  add_json_option(option, args.json);
}

void add_ranks_of_steps_options(const Options& option, StepOptions& args) {
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

void add_strategies_options(const Options& option, StepOptions& args,
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

}  // namespace ringside::cli
