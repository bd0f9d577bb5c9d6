// `ringside step experts`: shows which tokens go to which experts, and what the ranks send.
#include <iostream>

#include <fmt/format.h>

#include "cli/options/command.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/schedule/experts_picture.hpp"

namespace ringside::cli {

namespace {

struct ExpertsArguments {
  ExpertsPicture picture;
  std::string json;
};

void show_experts(const ExpertsArguments& args) {
  const RoutedTokens routed(args.picture);
  stream_beside(args.json) << routed.text();
  if (!args.json.empty()) write_json_file(args.json, routed.json());
}

}  // namespace

void add_step_experts_command(CLI::App& step) {
  const auto [option, args] = add_command(
      step, "experts", "Show how tokens travel to the ranks of their experts (expert parallel)",
      show_experts);
  ExpertsPicture& picture = args.picture;
  option("-n,--ranks N", picture.ranks, "Number of ranks, 2 to 8 [4]", in_range(2, 8));
  option("--experts E", picture.experts, "Experts of a block, a multiple of the ranks [8]",
         in_range(2, 64));
  option("--experts-per-token K", picture.per_token, "Experts of each token [2]", in_range(1, 64));
  option("--tokens T", picture.tokens, "Tokens of each rank [8]", in_range(1, 1024));
  option("--skew X", picture.skew,
         "How much the router prefers the first experts: 0 is not at all [0]", not_negative());
  option("--seed N", picture.seed, "Seed of the router's numbers [0]");
  add_json_option(option, args.json);
}

}  // namespace ringside::cli
