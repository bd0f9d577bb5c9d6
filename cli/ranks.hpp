// `-n N` of the commands that run on several ranks: N processes of this program on this machine, or the place that an outer
// launcher (ringside launch, torchrun, mpirun, srun) has given to this one.
//
//   auto ranks = std::make_shared<RanksOption>();
//   add_ranks_option(*command, *ranks);
//   command->callback([=] {
//     become_rank(*ranks);  // returns in a rank only
//     ... the place is in the environment: join the job ...
//   });
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/launcher.hpp"

namespace ringside::cli {

struct RanksOption {
  std::optional<int> count;  // what -n says
  int otherwise = 1;         // without -n and without an outer launcher
};

// Declares -n,--ranks.
void add_ranks_option(CLI::App& command, RanksOption& option);

// The command line by which this process was started, with the path of this very program in front.
std::vector<std::string> own_command();

// For options that count something of which there must be at least one: "at least 1 rank is needed, not 0".
CLI::Validator at_least_one(const std::string& thing);

// Declares --link RATE,LATENCY: every group that this process, and the ranks that it starts, make afterwards lies behind that link
// (collectives/transport/link.hpp). It is kept in the environment, as RINGSIDE_LINK.
void add_link_option(CLI::App& command);

// Returns in a process that is a rank, with its place in the environment:
//   - RANK, or Open MPI's name for it, is set: an outer launcher made this process, and -n, if given, must be its number of ranks;
//   - without -n, Slurm's name for it is set: so did srun (with -n it is not asked: a batch script has these variables too);
//   - one rank is wanted: this very process is it, which is what a debugger likes best.
// Otherwise starts the ranks as processes of this program with the same arguments, waits for them, and throws Exit with their code.
void become_rank(const RanksOption& option, RankOutput output = RankOutput::prefixed);

}  // namespace ringside::cli
