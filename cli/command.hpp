// The seam between `ringside` and its subcommands: each stands in a file of its own and adds itself
// with one function.
//
// add_NAME_command(app) declares the subcommand, its options and its help, and gives it a callback
// that does the work. The callback returns when all went well. Otherwise it throws:
//
//   ringside::Error   something is wrong: main prints "ringside: ..." and exits with 1
//   UsageError        the arguments make no sense together: the same, a hint at --help, and 2
//   Exit              everything has been said already (by a rank, by a launcher): main only hands the code on
#pragma once

#include <CLI/CLI.hpp>

#include "base/error.hpp"

namespace ringside::cli {

class UsageError : public Error {
 public:
  using Error::Error;
};

struct Exit {
  int code = 0;
};

void add_hello_command(CLI::App& app);
void add_launch_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_step_command(CLI::App& app);
void add_prove_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_bench_train_command(CLI::App& bench);
void add_bench_ddp_command(CLI::App& bench);
void add_bench_zero_command(CLI::App& bench);
void add_bench_kernels_command(CLI::App& bench);
void add_postmortem_command(CLI::App& app);

}  // namespace ringside::cli
