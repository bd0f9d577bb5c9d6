// `ringside launch -n 4 -- PROGRAM ARGS`: starts any program as the ranks of a job.

#include <memory>

#include "cli/command.hpp"
#include "cli/launcher/launcher.hpp"
#include "cli/launcher/ranks.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more = R"(
Each rank gets torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR, MASTER_PORT) and the secret key of
the job in RINGSIDE_JOB_KEY. It reads from /dev/null; its lines are printed as
"[2] ...". When one rank fails, the launcher ends the others. The exit code is
that of the first rank that failed, or 128 + the signal that killed it.

Examples:
  ringside launch -n 4 -- sh -c 'echo I am $RANK of $WORLD_SIZE'

  On two machines, with the same random text in RINGSIDE_JOB_KEY on both:
  ringside launch -n 4 --nnodes 2 --node-rank 0 \
                  --master-addr node0 --master-port 29500 -- PROGRAM
  ringside launch -n 4 --nnodes 2 --node-rank 1 \
                  --master-addr node0 --master-port 29500 -- PROGRAM)";

struct Arguments {
  LaunchOptions launch;
  std::optional<int> node_rank;
  double grace = 5;
  bool bare = false;
};

void run(Arguments args) {
  LaunchOptions& options = args.launch;
  if (options.nodes > 1 && !args.node_rank) {
    throw UsageError(fmt::format("which of the {} nodes is this? Give --node-rank 0 to {}",
                                 options.nodes, options.nodes - 1));
  }
  options.node_rank = args.node_rank.value_or(0);
  if (options.node_rank < 0 || options.node_rank >= options.nodes) {
    throw UsageError(
        fmt::format("--node-rank {} does not exist: with --nnodes {} the nodes are 0 to {}",
                    options.node_rank, options.nodes, options.nodes - 1));
  }
  options.grace = Seconds(args.grace);
  options.output = args.bare ? RankOutput::rank_0_bare : RankOutput::prefixed;
  throw Exit{launch(options)};
}

}  // namespace

void add_launch_command(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  LaunchOptions& options = args->launch;
  CLI::App* command =
      app.add_subcommand("launch", "Start any program as the ranks of a job")->footer(more);
  command->add_option("-n,--ranks", options.ranks, "Number of ranks on this machine")
      ->type_name("N")
      ->required()
      ->check(at_least_one("rank"));
  command
      ->add_option("--nnodes", options.nodes,
                   "Number of machines, each with the same number of ranks [1]")
      ->type_name("M")
      ->check(at_least_one("node"));
  command->add_option("--node-rank", args->node_rank, "The number of this machine, from 0")
      ->type_name("K");
  command
      ->add_option("--master-addr", options.master_address,
                   "Address on which rank 0 listens [one machine: 127.0.0.1]")
      ->type_name("ADDRESS");
  command
      ->add_option("--master-port", options.master_port,
                   "Port on which rank 0 listens [one machine: a free port]")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535).description(""));
  command
      ->add_option(
          "--job-key", options.job_key,
          "Secret with which the ranks authenticate each other. Prefer RINGSIDE_JOB_KEY, which no "
          "process list shows [one machine: random]")
      ->type_name("KEY");
  command
      ->add_option("--grace", args->grace,
                   "Seconds until the other ranks are ended after one has failed [5]")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber.description(""));
  command->add_flag("--bare", args->bare,
                    "Let rank 0 write to this terminal directly, without a prefix");
  command->add_option("PROGRAM", options.command, "The program and its arguments, after --")
      ->required()
      ->type_name("ARGS...");
  command->callback([args] { run(*args); });
}

}  // namespace ringside::cli
