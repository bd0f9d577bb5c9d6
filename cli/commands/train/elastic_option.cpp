#include "cli/commands/train/elastic_option.hpp"

#include <climits>
#include <memory>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "cli/launcher/exit.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "training/elastic/coordinator.hpp"

namespace ringside::cli {

void add_elastic_options(const Options& option, ElasticOption& elastic) {
  using training::ElasticSizes;
  option.with(
      "--elastic MIN:MAX",
      [&elastic](const std::string& text) { elastic.sizes = ElasticSizes::parse(text); },
      "Start MAX ranks. If one is killed or stopped, continue without it until the launcher has "
      "started another process in its place. The run ends if fewer than MIN are left "
      "(docs/elastic.md)",
      parsed_by([](const std::string& text) { ElasticSizes::parse(text); }));
  option("--restarts N", elastic.restarts,
         "With --elastic, the number of processes that may replace lost ranks [10]; else how "
         "often all ranks start again after a failure, from the last checkpoint if there "
         "is one [0]",
         not_negative());
}

void set_elastic(const ElasticOption& elastic, std::optional<int>& ranks, LaunchOptions& launch) {
  if (!elastic.sizes) {
    launch.restarts = elastic.restarts.value_or(0);
    return;
  }
  const auto [smallest, largest] = *elastic.sizes;
  refuse_if(ranks.value_or(largest) != largest,
            "-n {} and --elastic {}:{} contradict each other: leave out -n", ranks.value_or(0),
            smallest, largest);
  require(launch.nodes == 1,
          "the ranks of an elastic job run on one machine: leave out --elastic or --nnodes");
  const auto tasks = integer_environment("SLURM_NTASKS", 1, INT_MAX).value_or(1);
  require(tasks == 1 || !collectives::started_by_srun(),
          "--elastic starts its ranks itself, but srun has started {} tasks, each of which would "
          "start a job: take one, srun -n 1",
          tasks);
  ranks = largest;
  launch.members =
      std::make_shared<training::Coordinator>(*elastic.sizes, elastic.restarts.value_or(10));
}

}  // namespace ringside::cli
