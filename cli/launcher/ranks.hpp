// `-n N` of the commands that run on several ranks: N processes of this program on this machine, or
// the place that an outer launcher (ringside launch, torchrun, mpirun, srun) has given to this one;
// or N threads of this process.
//
//   auto ranks = std::make_shared<RanksOption>();
//   add_ranks_option(*command, *ranks);
//   add_backend_option(*command, *ranks);
//   command->callback([=] {
//     run_on_ranks(*ranks, [&](collectives::ProcessGroup& group, int ranks_here) { ... what each rank does ... });
//   });
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/launcher/launcher.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

struct RanksOption {
  std::optional<int> count;      // what -n says
  int otherwise = 1;             // without -n and without an outer launcher
  std::string backend = "auto";  // tcp, shm, threads, or auto

  int wanted() const { return count.value_or(otherwise); }  // where this process starts them
};

// Declares -n,--ranks.
void add_ranks_option(CLI::App& command, RanksOption& option);

// Declares --backend, of which there may be one, or several with commas between.
void add_backend_option(CLI::App& command, RanksOption& option);
void add_backends_option(CLI::App& command, std::vector<std::string>& backends);

// The command line by which this process was started, with the path of this very program in front.
std::vector<std::string> own_command();

// For options that count something of which there must be at least one: "at least 1 rank is needed,
// not 0".
CLI::Validator at_least_one(const std::string& thing);

// Declares --link RATE,LATENCY: every group that this process, and the ranks that it starts, make
// afterwards lies behind that link (collectives/transport/link.hpp). It is kept in the environment,
// as RINGSIDE_LINK.
void add_link_option(CLI::App& command);

// Returns in a process that is a rank, with its place in the environment:
//   - RANK, or Open MPI's name for it, is set: an outer launcher made this process, and -n, if given, must be its number of ranks;
//   - without -n, Slurm's name for it is set: so did srun (with -n it is not asked: a batch script has these variables too);
//   - one rank is wanted: this very process is it, which is what a debugger likes best.
// Otherwise starts the ranks as processes of this program with the same arguments, waits for them,
// and throws Exit with their code.
void become_rank(const RanksOption& option, RankOutput output = RankOutput::prefixed);

// Runs `body` on every rank, with a group of all over the backend: in threads of this process, or
// in this process as one rank of the job that it belongs to or starts (become_rank; rank 0 speaks
// without a prefix). If one throws, the others are told why, and it is thrown here. `prepare` comes
// before it, with the number of all ranks and of those on this machine: in the process that starts
// them, so that what is wrong is said once and before there are ranks, and in each rank before it
// joins the group.
void run_on_ranks(
    const RanksOption& option,
    const std::function<void(collectives::ProcessGroup& group, int ranks_here)>& body,
    const std::function<void(int ranks, int ranks_here)>& prepare = [](int, int) {});

// The same with a group over each of several backends, in this order, whatever option.backend says.
// Threads cannot be among them.
void run_on_ranks(
    const RanksOption& option, const std::vector<std::string>& backends,
    const std::function<void(std::span<collectives::ProcessGroup> groups, int ranks_here)>& body,
    const std::function<void(int ranks, int ranks_here)>& prepare = [](int, int) {});

}  // namespace ringside::cli
