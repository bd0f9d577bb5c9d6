// `ringside prove`: proves every algorithm of the catalogue for every number of ranks and every
// root, by following the contributions of each rank.

#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/words.hpp"
#include "cli/command.hpp"
#include "cli/report/json_file.hpp"
#include "cli/views/proof.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {

namespace {

using namespace collectives;

struct ProveOptions {
  std::string collective;
  std::string algorithm;
  int max_size = 64;
  std::string json;
};

// The algorithms of the collective and with the name in the options.
std::vector<Algorithm> selected(const ProveOptions& options) {
  if (!options.collective.empty())
    collective_named(options.collective);  // throws if there is none of this name
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

void prove_all(const ProveOptions& options) {
  std::vector<Proof> proofs;
  int wrong = 0;
  Json json = Json::array();
  for (const Algorithm& algorithm : selected(options)) {
    proofs.push_back(prove(algorithm, options.max_size));
    json.push_back(json_of(proofs.back()));
    if (!proofs.back().holds()) ++wrong;
  }
  print_proofs(stream_beside(options.json), proofs);
  std::cout.flush();
  if (!options.json.empty()) write_json_file(options.json, json);
  require(wrong == 0, "{} of {} algorithms are wrong: see the findings above", wrong,
          proofs.size());
}

}  // namespace

void add_prove_command(CLI::App& app) {
  const auto options = std::make_shared<ProveOptions>();
  CLI::App* command = app.add_subcommand(
      "prove",
      "Prove every algorithm by following which contributions each chunk holds; or pipelines");
  command->add_option("collective", options->collective, "Only this collective, such as all_reduce")
      ->type_name("NAME");
  command
      ->add_option("--algorithm", options->algorithm, "Only algorithms of this name, such as ring")
      ->type_name("NAME");
  command
      ->add_option("--max-size", options->max_size,
                   "Prove for every number of ranks from 1 to N, at most 256 [64]")
      ->type_name("N")
      ->check(CLI::Range(1, 256).description(""));
  command
      ->add_option(
          "--json", options->json,
          "Write the results to this file; - writes them to standard output and the table to "
          "standard error")
      ->type_name("FILE");
  add_commands(*command, "prove");
  command->callback([command, options] {
    if (command->get_subcommands().empty()) prove_all(*options);
  });
}

}  // namespace ringside::cli
