// `ringside launch -n 4 -- PROGRAM ARGS`: any program as the ranks of a job.

#include <memory>

#include "cli/command.hpp"
#include "cli/launcher/launcher.hpp"
#include "cli/launcher/ranks.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more =
    "\nEach rank finds its place in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, "
    "MASTER_ADDR and\n"
    "MASTER_PORT, as with torchrun, and the key of the job in RINGSIDE_JOB_KEY. It reads "
    "/dev/null; its lines are\n"
    "printed as \"[2] ...\". When one fails, the others are ended. The exit code is that of the "
    "first rank that\n"
    "failed, or 128 + the signal that killed it.\n"
    "\n"
    "Examples:\n"
    "  ringside launch -n 4 -- sh -c 'echo I am $RANK of $WORLD_SIZE'\n"
    "\n"
    "  On two machines, with the same random text in RINGSIDE_JOB_KEY on both:\n"
    "  ringside launch -n 4 --nnodes 2 --node-rank 0 --master-addr node0 --master-port 29500 -- "
    "PROGRAM\n"
    "  ringside launch -n 4 --nnodes 2 --node-rank 1 --master-addr node0 --master-port 29500 -- "
    "PROGRAM";

struct Arguments {
  LaunchOptions launch;
  std::optional<int> node_rank;
  double grace = 5;
  bool bare = false;
};

void run(Arguments arguments) {
  LaunchOptions& options = arguments.launch;
  if (options.nodes > 1 && !arguments.node_rank) {
    throw UsageError(fmt::format("which of the {} nodes is this? Give --node-rank 0 to {}",
                                 options.nodes, options.nodes - 1));
  }
  options.node_rank = arguments.node_rank.value_or(0);
  if (options.node_rank < 0 || options.node_rank >= options.nodes) {
    throw UsageError(
        fmt::format("--node-rank {} does not exist: with --nnodes {} the nodes are 0 to {}",
                    options.node_rank, options.nodes, options.nodes - 1));
  }
  options.grace = Seconds(arguments.grace);
  options.output = arguments.bare ? RankOutput::rank_0_bare : RankOutput::prefixed;
  throw Exit{launch(options)};
}

}  // namespace

void add_launch_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  LaunchOptions& options = arguments->launch;
  CLI::App* command =
      app.add_subcommand("launch", "Start any program as the ranks of a job")->footer(more);
  command->add_option("-n,--ranks", options.ranks, "Number of ranks on this machine")
      ->type_name("N")
      ->required()
      ->check(at_least_one("rank"));
  command
      ->add_option("--nnodes", options.nodes,
                   "Number of machines, each with the same number of ranks (1)")
      ->type_name("M")
      ->check(at_least_one("node"));
  command->add_option("--node-rank", arguments->node_rank, "Which of them this is, from 0")
      ->type_name("K");
  command
      ->add_option("--master-addr", options.master_address,
                   "Where rank 0 listens (one machine: 127.0.0.1)")
      ->type_name("ADDRESS");
  command
      ->add_option("--master-port", options.master_port, "At which port (one machine: a free one)")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
  command
      ->add_option("--job-key", options.job_key,
                   "Secret by which the ranks know each other (one machine: random); "
                   "RINGSIDE_JOB_KEY shows up in no process list")
      ->type_name("KEY");
  command
      ->add_option("--grace", arguments->grace,
                   "Seconds that the other ranks are left when one has failed (5)")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--bare", arguments->bare,
                    "Let rank 0 write to this terminal directly, without a prefix");
  command->add_option("PROGRAM", options.command, "The program and its arguments, after --")
      ->required()
      ->type_name("ARGS...");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace ringside::cli
