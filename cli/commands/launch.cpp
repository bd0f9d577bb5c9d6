// `ringside launch -n 4 -- PROGRAM ARGS`: starts any program as the ranks of a job.

#include "cli/commands/train/elastic_option.hpp"
#include "cli/launcher/launcher.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/options/rank_options.hpp"

namespace ringside::cli {
namespace {

struct LaunchArguments {
  LaunchOptions launch;
  ElasticOption elastic;
  std::optional<int> ranks, node_rank;
  double grace = 5;
};

void run(const LaunchArguments& args) {
  LaunchOptions options = args.launch;
  refuse_if(options.nodes > 1 && !args.node_rank,
            "which of the {} nodes is this? Give --node-rank 0 to {}", options.nodes,
            options.nodes - 1);
  options.node_rank = args.node_rank.value_or(0);
  refuse_if(options.node_rank < 0 || options.node_rank >= options.nodes,
            "--node-rank {} does not exist: with --nnodes {} the nodes are 0 to {}",
            options.node_rank, options.nodes, options.nodes - 1);
  std::optional<int> ranks = args.ranks;
  set_elastic(args.elastic, ranks, options);
  refuse_if(!ranks, "--ranks is required, or --elastic");
  options.ranks = *ranks;
  options.grace = Seconds(args.grace);
  throw Exit{launch(options)};
}

}  // namespace

void add_launch_command(CLI::App& app) {
  const auto [option, args] =
      add_command(app, "launch", "Start any program as the ranks of a job", run);
  LaunchOptions& options = args.launch;
  option("-n,--ranks N", args.ranks, "Number of ranks on this machine [--elastic: MAX]",
         at_least_one("rank"));
  add_elastic_options(option, args.elastic);
  option("--nnodes M", options.nodes, "Number of machines, each with the same number of ranks [1]",
         at_least_one("node"));
  option("--node-rank K", args.node_rank, "The number of this machine, from 0");
  option("--master-addr ADDRESS", options.master_address,
         "Address on which rank 0 listens [one machine: 127.0.0.1]");
  option("--master-port PORT", options.master_port,
         "Port on which rank 0 listens [one machine: a free port]", in_range(1, 65535));
  option("--job-key KEY", options.job_key,
         "Secret with which the ranks authenticate each other. Prefer RINGSIDE_JOB_KEY, which no "
         "process list shows [one machine: random]");
  option("--grace SECONDS", args.grace,
         "Seconds until the other ranks are ended after one has failed [5]", not_negative());
  option.flag("--bare", options.rank_0_bare,
              "Let rank 0 write to this terminal directly, without a prefix");
  option("PROGRAM ARGS...", options.command, "The program and its arguments, after --").required();
}

}  // namespace ringside::cli
