// The options of the benches of a training step, each declared once.
#pragma once

#include <string>
#include <vector>

#include "bench/training/step_options.hpp"
#include "cli/options/options.hpp"

namespace ringside::cli {

// Declares --model, --batch, --sequence, --steps and --json.
void add_step_options(const Options& option, StepOptions& args);

// Declares these, -n, --link, --algorithm, --device, --device-backend, --threads and
// --memory-limit; --backend is left to the bench.
void add_ranks_of_steps_options(const Options& option, StepOptions& args);

// Declares these, --backend for several backends, and --strategies for some of these strategies,
// and perhaps for those that send fewer bytes.
void add_strategies_options(const Options& option, StepOptions& args,
                            std::vector<std::string>& strategies, bool lossy = false);

// Declares --dtype for fp32 and bf16.
void add_dtype_option(const Options& option, std::string& dtype);

}  // namespace ringside::cli
