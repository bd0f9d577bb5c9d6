// `ringside prove`: proves every algorithm of the catalogue for every number of ranks and every
// root, by following the contributions of each rank.

#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text/words.hpp"
#include "cli/options/algorithm_name.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/schedule/proof.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/exchange/algorithm_file.hpp"

namespace ringside::cli {

namespace {

using namespace collectives;

struct ProveOptions {
  std::string collective;
  std::string algorithm;
  int max_size = 64;
  bool bounds = false;
  std::string json;
};

// The algorithms of the collective and with the name in the options.
std::vector<Algorithm> selected(const ProveOptions& options) {
  if (!options.collective.empty())
    collective_named(options.collective);  // throws if there is none of this name
  if (is_algorithm_file(options.algorithm)) {
    const Algorithm& algorithm = load_algorithm(options.algorithm);
    require(options.collective.empty() || options.collective == name_of(algorithm.collective),
            "{} is an algorithm for {}, not for {}", options.algorithm,
            name_of(algorithm.collective), options.collective);
    return {algorithm};
  }
  std::vector<Algorithm> algorithms;
  std::set<std::string> names;
  for (const Algorithm& algorithm : all_algorithms()) {
    names.emplace(algorithm.name);
    if (!options.collective.empty() && name_of(algorithm.collective) != options.collective)
      continue;
    if (!options.algorithm.empty() && algorithm.name != options.algorithm) continue;
    algorithms.push_back(algorithm);
  }
  require(!algorithms.empty(), "there is no algorithm named '{}'{}{}; there are {}",
          options.algorithm, options.collective.empty() ? "" : " for " + options.collective,
          did_you_mean(options.algorithm, {names.begin(), names.end()}), fmt::join(names, ", "));
  return algorithms;
}

void prove_all(const ProveOptions& given) {
  ProveOptions options = given;
  divide_algorithm_name(options.collective, options.algorithm);
  if (options.bounds) {
    const BoundsReport report = report_bounds(selected(options), options.max_size);
    stream_beside(options.json) << report.text;
    if (!options.json.empty()) write_json_file(options.json, report.json);
    return;
  }
  std::vector<Proof> proofs;
  for (const Algorithm& algorithm : selected(options))
    proofs.push_back(prove(algorithm, options.max_size));
  report_proofs(proofs, options.json, "algorithms");
}

}  // namespace

void add_prove_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "prove",
      "Prove every algorithm by following which contributions each chunk holds; or pipelines",
      prove_all);
  option("collective NAME", args.collective,
         "Only this collective, such as all_reduce; or one algorithm, ring_all_reduce");
  option("--algorithm NAME", args.algorithm,
         "Only algorithms of this name, such as ring; or one from a file, such as my.json, or "
         "MSCCL's my.xml");
  option("--max-size N", args.max_size,
         "Prove for every number of ranks from 1 to N, at most 256 [64]; a file is for those "
         "that it has",
         in_range(1, 256));
  option.flag("--bounds", args.bounds,
              "Count steps, bytes and additions on --max-size ranks beside the "
              "lower bounds, and prove nothing");
  add_json_option(option, args.json);
  add_commands(option.command(), "prove");
}

}  // namespace ringside::cli
