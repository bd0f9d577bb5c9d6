// `-n N` of the commands that run on several ranks. The ranks are N processes of this program on
// this machine, N threads of this process, or processes of an outer launcher (ringside launch,
// torchrun, mpirun, srun), of which this process is one.
//
//   RanksOption ranks;
//   add_ranks_option(command, ranks);  // options/rank_options.hpp
//   add_backend_option(command, ranks.backend);
//   ...
//   run_on_ranks(ranks, [&](collectives::ProcessGroup& group, int ranks_here) {
//     ... the work of each rank ...
//   });
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/launcher/launcher.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

struct RanksOption {
  std::optional<int> count;      // -n
  int otherwise = 1;             // without -n and without an outer launcher
  std::string backend = "auto";  // tcp, shm, threads, or auto
  LaunchOptions launch = {};     // without number of ranks and command

  int wanted() const { return count.value_or(otherwise); }  // where this process starts them
};

// The command line of this process, with the path of this program as its first element.
std::vector<std::string> own_command();

// Whether this process is a rank that a process with the same arguments has started.
bool started_by_same_command();

// Whether this process is one of several that `ringside launch` started on this machine with this
// command, and not the first of them. What is wrong with the command or its files, they would all
// say; the first one says it.
bool another_rank_reports();

// Runs `body` on every rank, with a group of all ranks over the backend. The ranks are threads of
// this process, or processes (rank 0 prints without a prefix). If `body` throws on one
// rank, the other ranks abort with its message, and it is thrown here.
//
// `prepare` runs before `body`, with the number of all ranks and of those on this machine: once in
// the process that starts the ranks, so that an error is printed once, and then on each rank before
// it joins the group.
void run_on_ranks(
    const RanksOption& option,
    const std::function<void(collectives::ProcessGroup& group, int ranks_here)>& body,
    const std::function<void(int ranks, int ranks_here)>& prepare = [](int, int) {});

// The same with one group for each of several backends, in this order; option.backend is ignored.
// Threads cannot be among several backends.
void run_on_ranks(
    const RanksOption& option, const std::vector<std::string>& backends,
    const std::function<void(std::span<collectives::ProcessGroup> groups, int ranks_here)>& body,
    const std::function<void(int ranks, int ranks_here)>& prepare = [](int, int) {});

// The same for ranks that are processes and connect by themselves: `body` gets no group.
void run_on_processes(const RanksOption& option,
                      const std::function<void(const collectives::RankInfo&)>& body,
                      const std::function<void(int ranks, int ranks_here)>& prepare);

}  // namespace ringside::cli
