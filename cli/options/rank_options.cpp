#include "cli/options/rank_options.hpp"

#include <cstdlib>

#include <fmt/format.h>

#include "cli/launcher/exit.hpp"
#include "cli/options/options.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::cli {
namespace {

constexpr const char* backends_in_words =
    "How ranks communicate. tcp and shm: each rank is a process; threads: the ranks are threads of "
    "one process; auto: shm on one host, tcp on several";

Check one_of_the_backends() {
  const auto among = one_of({"auto", "tcp", "shm", "threads"});
  return [among](const std::string& value) {
    const std::string error = among(value);
    if (error.empty() || (value != "cuda_ipc" && value != "nccl")) return error;
    return fmt::format("{}; between GPUs gradients go over --device-backend {}", error, value);
  };
}

}  // namespace

void add_ranks_option(const Options& option, RanksOption& ranks) {
  option("-n,--ranks N", ranks.count,
         fmt::format("Number of ranks: processes on this machine [under an outer "
                     "launcher: its number; else {}]",
                     ranks.otherwise),
         at_least_one("rank"));
}

void add_backend_option(const Options& option, std::string& backend) {
  option("--backend NAME", backend, backends_in_words, one_of_the_backends()).show_default();
}

void add_backends_option(const Options& option, std::vector<std::string>& backends) {
  option("--backend NAME,...", backends,
         fmt::format("{}. Several backends take turns", backends_in_words), one_of_the_backends())
      .show_default();
}

void add_link_option(const Options& option) {
  const auto keep = [](const std::string& text) { ::setenv("RINGSIDE_LINK", text.c_str(), 1); };
  option.with(
      "--link RATE,LATENCY", keep,
      "Emulate a slower network, for example 1Gbps,50us: the bandwidth of each rank's link, "
      "each way, and the latency of a message [RINGSIDE_LINK, else none]",
      parsed_by(collectives::parse_link));
}

void add_algorithm_option(const Options& option) {
  const auto keep = [](const std::string& text) {
    ::setenv("RINGSIDE_ALGORITHM", text.c_str(), 1);
  };
  option.with("--algorithm NAME,...", keep,
              "Force algorithms: all_reduce=halving_doubling, or a file, such as my.json "
              "[RINGSIDE_ALGORITHM, else by calibration]",
              parsed_by([](const std::string& text) {
                collectives::load_algorithms(text);
                collectives::AlgorithmSelection check(text);
              }));
}

}  // namespace ringside::cli
