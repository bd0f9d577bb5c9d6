// `ringside synthesize`: an algorithm for a network that a solver finds, or its word that there is
// none.

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/clock.hpp"
#include "cli/launcher/exit.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/exchange/schedule_json.hpp"
#include "collectives/exchange/synthesis.hpp"

namespace ringside::cli {
namespace {

using namespace collectives;

struct SynthesizeOptions {
  std::string collective, topology = "ring", json;
  int ranks = 0, root = 0, chunks = 1, steps = 0, rounds = 0;
  double time_limit = 300;
};

// "an all_gather with 1 chunk for each rank in 2 steps and 2 rounds on dgx1 (8 ranks)"
std::string in_words(const Question& question, const Network& network) {
  const std::string of = has_blocks(question.collective) || reduces(question.collective)
                             ? " for each rank"
                             : " of the buffer";
  return fmt::format("{} with {}{}, {} and {} on {} ({})", name_of(question.collective),
                     counted(question.chunks, "chunk"),
                     question.collective == Collective::reduce ? " of the buffer" : of,
                     counted(question.steps, "step"), counted(question.rounds, "round"),
                     network.name, counted(network.size, "rank"));
}

void write_algorithm(const SynthesizeOptions& options, const Question& question,
                     const Network& network, const CaseOfFile& algorithm) {
  Json json = {{"collective", options.collective}};
  json["root"] = has_root(question.collective) ? Json(question.root) : Json();
  json["network"] = network.name;
  json["chunks_per_block"] = question.chunks;
  json["steps"] = question.steps;
  json["rounds"] = question.rounds;
  json["schedules"] = algorithm.schedules;
  write_json_file(options.json, json);
}

void synthesize_as_asked(const SynthesizeOptions& options) {
  const Question question{.collective = collective_named(options.collective),
                          .root = options.root,
                          .chunks = options.chunks,
                          .steps = options.steps,
                          .rounds = options.rounds == 0 ? options.steps : options.rounds,
                          .time_limit = Seconds(options.time_limit)};
  refuse_if(question.root != 0 && !has_root(question.collective),
            "{} has no root: leave out --root", options.collective);
  const Network network = network_named(options.topology, options.ranks);
  const auto start = Clock::now();
  const Synthesis synthesis = synthesize(question, network);
  const double seconds = seconds_since(start);
  std::FILE* const out = file_beside(options.json);
  if (synthesis.answer == Answer::out_of_time)
    fail(
        "Z3 has no answer after {:g} s, so nobody knows whether there is this algorithm: {}; give "
        "it "
        "more --time-limit",
        options.time_limit, in_words(question, network));
  if (synthesis.answer == Answer::none) {
    fmt::print(out, "There is no {}.\n{} ({:.1f} s).\n", in_words(question, network), synthesis.why,
               seconds);
    throw Exit{1};
  }
  const auto& schedules = synthesis.algorithm.schedules;
  fmt::print(out,
             "Found: {}.\nZ3 took {:.1f} s. Rounds of each step: {}.\nAs a schedule, where a rank "
             "sends and receives one message at a time: {} in {}.\nProved: {}.\n",
             in_words(question, network), seconds, fmt::join(synthesis.rounds, ", "),
             counted(schedules[0].chunks, "chunk"), counted(std::ssize(schedules[0].steps), "step"),
             promise_of(question.collective));
  if (!options.json.empty()) write_algorithm(options, question, network, synthesis.algorithm);
}

}  // namespace

void add_synthesize_command(CLI::App& app) {
  const auto [option, args] =
      add_command(app, "synthesize",
                  "Let a solver find an algorithm for a network, or prove that there is none",
                  synthesize_as_asked);
  option("collective NAME", args.collective,
         "all_gather, broadcast, gather, scatter, reduce_scatter, reduce or all_reduce")
      ->required();
  option("-n,--ranks N", args.ranks, "Number of ranks, 2 to 64 [4, or those of the network]",
         in_range(2, 64));
  option("--topology NETWORK", args.topology,
         "ring (both ways), line, star (around rank 0), full, dgx1, or a file FILE.json [ring]");
  option("--steps S", args.steps, "Steps, one after the other", at_least_one("step"))->required();
  option("--rounds R", args.rounds,
         "Rounds in all steps together: in each, a link carries as many chunks as it is wide [S]",
         at_least_one("round"));
  option("--chunks C", args.chunks,
         "Chunks of each rank's block; of a broadcast and a reduce, of the buffer [1]",
         at_least_one("chunk"));
  option("--root RANK", args.root, "The root of a broadcast, reduce, gather or scatter [0]");
  option("--time-limit SECONDS", args.time_limit, "Give up after so long [300]", positive());
  option("--json FILE", args.json,
         "Write the algorithm to this file, which --algorithm of step, prove and bench reads; - "
         "writes it to standard output");
}

}  // namespace ringside::cli
