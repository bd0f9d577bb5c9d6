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
#include "cli/pictures/command_result.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/schedule/order_report.hpp"
#include "cli/pictures/schedule/proof.hpp"
#include "cli/pictures/table.hpp"
#include "cli/pictures/terminal.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/selection/cost_model.hpp"

namespace ringside::cli {

namespace {

using namespace collectives;

struct ProveOptions {
  std::string collective = {};
  std::string algorithm = {};
  int max_size = 64;
  bool bounds = false;
  std::vector<double> costs = {};  // alpha and beta
  std::vector<std::string> bytes{"1MB"};
  std::string order = {}, same_as = {};  // names of algorithms
  std::vector<int> ranks{4};
  std::string json = {};
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
    if (!options.collective.empty() && name_of(algorithm.collective) != options.collective)
      continue;
    names.emplace(algorithm.name);
    if (!options.algorithm.empty() && algorithm.name != options.algorithm) continue;
    algorithms.push_back(algorithm);
  }
  require(!algorithms.empty(), "there is no algorithm named '{}'{}{}; there are {}",
          options.algorithm, options.collective.empty() ? "" : " for " + options.collective,
          did_you_mean(options.algorithm, {names.begin(), names.end()}), fmt::join(names, ", "));
  return algorithms;
}

// What a message costs, alpha, and each of its bytes, beta; nothing else takes time.
CostParameters parameters_of(const std::vector<double>& costs) {
  refuse_if(costs.size() != 2 || costs[0] < 0 || costs[1] < 0,
            "--costs: two numbers of at least 0 are expected, the seconds of a message and of each "
            "of its bytes, as in --costs 3e-6,2e-11");
  return {.alpha = costs[0], .beta = costs[1], .overhead = costs[0]};
}

void print_costs(const ProveOptions& options) {
  const CostParameters parameters = parameters_of(options.costs);
  Table table{{words("collective", "collective"), words("algorithm", "algorithm"),
               number("ranks", "ranks"), number("bytes", "bytes"), number("seconds", "seconds")}};
  for (Algorithm algorithm : selected(options)) {
    if (is_algorithm_file(options.algorithm))
      algorithm = algorithm_named(algorithm.collective, options.algorithm);
    for (const std::string& text : options.bytes) {
      const std::uint64_t bytes = parse_bytes(text);
      table.rows.push_back({name_of(algorithm.collective), algorithm.name, options.max_size, bytes,
                            cost_of(algorithm, options.max_size, bytes, parameters).seconds});
    }
  }
  write_results({{table.text(), table.json()}}, options.json);
}

// ring_all_reduce, ring of the collective in the options, else of all_reduce; or a file.
Algorithm algorithm_of_order(const ProveOptions& options, std::string name) {
  std::string collective = name, algorithm;
  divide_algorithm_name(collective, algorithm);
  if (algorithm.empty()) {
    algorithm = name;
    collective =
        options.collective.empty() && !is_algorithm_file(name) ? "all_reduce" : options.collective;
  }
  return selected({.collective = collective, .algorithm = algorithm}).front();
}

void print_order(const ProveOptions& options) {
  for (const int ranks : options.ranks)
    refuse_if(ranks < 1 || ranks > 256, "-n: numbers of ranks from 1 to 256 are expected, not {}",
              ranks);
  const std::string& other = options.same_as.empty() ? options.order : options.same_as;
  const Algorithm a = algorithm_of_order(options, options.order.empty() ? other : options.order);
  refuse_if(options.ranks.size() > (options.same_as.empty() ? 1 : 2), "-n: {}",
            options.same_as.empty() ? "--order takes one number of ranks"
                                    : "--same-as takes one number of ranks, or two");
  write_results({options.same_as.empty()
                     ? report_order(a, options.ranks[0])
                     : report_same_order(a, options.ranks.front(),
                                         algorithm_of_order(options, other), options.ranks.back())},
                options.json);
}

void prove_all(const ProveOptions& given) {
  ProveOptions options = given;
  divide_algorithm_name(options.collective, options.algorithm);
  if (!options.order.empty() || !options.same_as.empty()) return print_order(options);
  if (!options.costs.empty()) return print_costs(options);
  if (options.bounds)
    return write_results({report_bounds(selected(options), options.max_size)}, options.json);
  std::vector<Proof> proofs;
  for (const Algorithm& algorithm : selected(options)) {
    show_progress(fmt::format("proving {}, {}", name_of(algorithm.collective), algorithm.name));
    proofs.push_back(prove(algorithm, options.max_size));
  }
  show_progress("");
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
         "Only algorithms of this name, such as ring; or one from a file, such as my.json");
  option("--max-size N", args.max_size,
         "Prove for every number of ranks from 1 to N, at most 256 [64]; an algorithm from a "
         "file for the numbers in the file",
         in_range(1, 256));
  option.flag("--bounds", args.bounds,
              "Do not prove: compare steps, bytes and additions on --max-size ranks with their "
              "lower bounds");
  option("--costs ALPHA,BETA", args.costs,
         "Do not prove: compute the seconds of a call of --bytes on --max-size ranks, where a "
         "message takes ALPHA seconds and each of its bytes BETA")
      .separated_by(',');
  option("--bytes SIZE,...", args.bytes, "With --costs: sizes of the whole buffer [1MB]");
  option("--order NAME", args.order,
         "Print the order in which this algorithm, such as ring_all_reduce, adds what -n ranks "
         "hold, and prove nothing else");
  option("--same-as NAME", args.same_as,
         "Say whether this algorithm adds in the same order as that of --order; with -n 4,8 "
         "whether it does on 8 ranks as on 4");
  option("-n,--ranks N,...", args.ranks, "With --order and --same-as: numbers of ranks [4]")
      .separated_by(',');
  add_json_option(option, args.json);
  add_commands(option.command(), "prove");
}

}  // namespace ringside::cli
