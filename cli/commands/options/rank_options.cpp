#include "cli/commands/options/rank_options.hpp"

#include <climits>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "cli/commands/options/options.hpp"
#include "cli/launcher/exit.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "collectives/transport/link.hpp"
#include "training/elastic/coordinator.hpp"

namespace ringside::cli {
namespace {

constexpr const char* backends_in_words =
    "How ranks communicate. tcp and shm: each rank is a process; threads: the ranks are threads of "
    "one process; auto: shm on one host, tcp on several";

CLI::Validator one_of_the_backends() {
  const auto among = one_of({"auto", "tcp", "shm", "threads"});
  const auto check = [among](std::string value) {
    const std::string error = among(value);
    if (error.empty() || (value != "cuda_ipc" && value != "nccl")) return error;
    return fmt::format("{}; between GPUs gradients go over --device-backend {}", error, value);
  };
  return CLI::Validator(check, "");
}

}  // namespace

void add_ranks_option(const Options& option, RanksOption& ranks) {
  option("-n,--ranks N", ranks.count,
         fmt::format("Number of ranks: processes on this machine [under an outer "
                     "launcher: its number; else {}]",
                     ranks.otherwise),
         at_least_one("rank"));
}

void add_elastic_options(const Options& option, ElasticOption& elastic) {
  using training::ElasticSizes;
  option.command()
      .add_option_function<std::string>(
          "--elastic",
          [&elastic](const std::string& text) { elastic.sizes = ElasticSizes::parse(text); },
          "Start MAX ranks, go on without one that is killed or stopped, and take in the process "
          "that the launcher starts in its place; end with fewer than MIN (docs/elastic.md)")
      ->type_name("MIN:MAX")
      ->check(parsed_by([](const std::string& text) { ElasticSizes::parse(text); }));
  option("--restarts N", elastic.restarts,
         "With --elastic, processes that may take the place of lost ranks [10]; else how "
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

void add_backend_option(const Options& option, std::string& backend) {
  option("--backend NAME", backend, backends_in_words, one_of_the_backends())
      ->capture_default_str();
}

void add_backends_option(const Options& option, std::vector<std::string>& backends) {
  option("--backend NAME,...", backends,
         fmt::format("{}. Several backends take turns", backends_in_words), one_of_the_backends())
      ->capture_default_str();
}

void add_link_option(const Options& option) {
  const auto keep = [](const std::string& text) { ::setenv("RINGSIDE_LINK", text.c_str(), 1); };
  option.command()
      .add_option_function<std::string>("--link", keep,
                                        "Emulate a slower network, for example 1Gbps,50us: the "
                                        "bandwidth of each rank's link, each way, and the latency "
                                        "of a message [RINGSIDE_LINK, else none]")
      ->type_name("RATE,LATENCY")
      ->check(parsed_by(collectives::parse_link));
}

void add_algorithm_option(const Options& option) {
  const auto keep = [](const std::string& text) {
    ::setenv("RINGSIDE_ALGORITHM", text.c_str(), 1);
  };
  option.command()
      .add_option_function<std::string>("--algorithm", keep,
                                        "Force algorithms: all_reduce=halving_doubling, or a file, "
                                        "such as my.json [RINGSIDE_ALGORITHM, else by calibration]")
      ->type_name("NAME,...")
      ->check(
          parsed_by([](const std::string& text) { collectives::AlgorithmSelection check(text); }));
}

void add_memory_limit(const Options& option, std::optional<double>& gigabytes) {
  option("--memory-limit GB", gigabytes,
         "Refuse to start if this machine needs more memory, in 10^9 bytes; 0: do not "
         "check [the available memory]",
         not_negative());
}

}  // namespace ringside::cli
