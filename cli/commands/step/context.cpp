// `ringside step context`: shows how ranks divide the tokens of a sequence, and the steps of a
// ring.
#include <iostream>
#include <string>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/options/command.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/schedule/context_picture.hpp"
#include "cli/pictures/text_file.hpp"

namespace ringside::cli {

namespace {

struct ContextArguments {
  int ranks = 4;
  bool zigzag = false;
  std::int64_t tokens = 65536;
  std::string svg, json;
};

void show_context(const ContextArguments& args) {
  using namespace context_parallel;
  const ContextPicture picture{
      args.ranks, args.zigzag ? TokenOrder::zigzag : TokenOrder::contiguous, args.tokens};
  context_parallel::require_divisible({Exchange::ring, picture.order}, args.ranks, args.tokens, 1,
                                      1);
  const int pieces = piece_count(picture.order, args.ranks);
  const auto last = visible_pairs(picture.order, args.ranks, args.ranks - 1, args.tokens),
             first = visible_pairs(picture.order, args.ranks, 0, args.tokens);
  stream_beside(args.json) << fmt::format(
      "{} order on {} ranks: {} pieces of {} of the {} tokens of a sequence\n\n"
      "The step of the ring in which a block is computed (\\ half masked, . masked):\n\n{}\n{}"
      "\npairs: of a query and a key that it sees; attention multiplies so often.\n"
      "{}\n",
      name_of(picture.order), args.ranks, pieces, args.tokens / pieces, args.tokens,
      blocks_text(picture), ranks_of(picture).text(),
      args.zigzag ? "All ranks compute the same."
                  : fmt::format("The last rank computes {:.2f} times as much as the first: 2 c - 1 "
                                "= {} blocks.\nTry --zigzag.",
                                static_cast<double>(last) / static_cast<double>(first),
                                2 * args.ranks - 1));
  if (!args.svg.empty()) write_text_file(args.svg, svg_of(picture), "the picture");
  if (!args.json.empty()) write_json_file(args.json, json_of(picture));
}

}  // namespace

void add_step_context_command(CLI::App& step) {
  const auto [option, args] = add_command(
      step, "context", "Show how ranks divide the tokens of a sequence (context parallel)",
      show_context);
  option("-n,--ranks N", args.ranks, "Number of ranks, 2 to 8 [4]", in_range(2, 8));
  option.flag("--zigzag", args.zigzag,
              "Each rank has an early and a late piece, not one [contiguous order]");
  option("--sequence N", args.tokens, "Tokens per sequence [65536]", in_range(1, 1 << 30));
  option("--svg FILE", args.svg, "Draw the blocks to this file, for a browser");
  add_json_option(option, args.json);
}

}  // namespace ringside::cli
