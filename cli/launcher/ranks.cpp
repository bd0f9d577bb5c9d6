#include "cli/launcher/ranks.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <sstream>

#include <unistd.h>

#include "base/environment.hpp"
#include "base/read_file.hpp"
#include "cli/launcher/exit.hpp"
#include "cli/launcher/processes/rank_process.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/ranks/run_threads.hpp"

namespace ringside::cli {
namespace {

constexpr int most_ranks = 1 << 20;

struct OuterLauncher {
  std::int64_t ranks;
  const char *rank, *size;  // its environment variables
};

// The outer launcher that started this process, if there is one (without Slurm).
std::optional<OuterLauncher> outer_launcher() {
  for (const auto& [rank, size] : {std::pair("RANK", "WORLD_SIZE"),
                                   std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")}) {
    if (!environment(rank)) continue;
    const auto ranks = integer_environment(size, 1, most_ranks);
    require(ranks.has_value(),
            "{} is set but {} is not: a launcher sets both; unset {} to start ranks from here",
            rank, size, rank);
    return OuterLauncher{*ranks, rank, size};
  }
  return std::nullopt;
}

// Whether srun started this process. Throws UsageError in a batch script with several tasks, where
// somebody has forgotten srun.
bool is_slurm_task() {
  if (collectives::started_by_srun()) return true;
  const auto tasks = integer_environment("SLURM_NTASKS", 1, most_ranks).value_or(1);
  refuse_if(environment("SLURM_PROCID") && tasks > 1,
            "this job of Slurm has {} tasks, but srun has not started this process as one "
            "of them: put srun before the command, or start the ranks on this host with -n",
            tasks);
  return false;
}

// Whether an outer launcher started this process as one of its ranks.
bool is_rank(const RanksOption& option) {
  const auto outer = outer_launcher();
  if (!outer) return !option.count && is_slurm_task();
  if (option.count && *option.count != outer->ranks) {
    throw UsageError(
        fmt::format("-n asks for {} ranks, but the environment says that this process is one of "
                    "{}: leave out -n, or unset {} and {}",
                    *option.count, outer->ranks, outer->rank, outer->size));
  }
  return true;
}

void become_the_only_rank(const LaunchOptions& options) {
  const auto rendezvous = choose_rendezvous_address(options);
  for (const auto& [name, value] : rank_environment(options, rendezvous, 0))
    ::setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace

std::vector<std::string> own_command() {
  std::vector<std::string> command;
  std::istringstream arguments(read_file("/proc/self/cmdline"));
  for (std::string each; std::getline(arguments, each, '\0');) command.push_back(each);
  require(!command.empty(), "cannot read the arguments of this process from /proc/self/cmdline");
  command.front() = std::filesystem::read_symlink("/proc/self/exe");
  return command;
}

bool started_by_same_command() {
  const auto arguments_of = [](const std::string& process) {
    const std::string line = read_if_possible("/proc/" + process + "/cmdline").value_or("");
    return line.substr(std::min(line.size(), line.find('\0')));  // without the program's path
  };
  return environment("RANK") && arguments_of(std::to_string(::getppid())) == arguments_of("self");
}

// Under torchrun and mpirun every rank says what is wrong. They end a job as soon as one rank has
// failed, so a silent rank could end it before the first one has spoken.
bool another_rank_reports() {
  if (environment("LOCAL_RANK").value_or("0") == "0") return false;
  std::error_code ignored;
  const auto parent =
      std::filesystem::read_symlink(fmt::format("/proc/{}/exe", ::getppid()), ignored);
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  // `ringside launch -- ringside bench` starts another program of the same folder.
  return parent.parent_path() == self.parent_path() &&
         parent.filename().string().starts_with("ringside");
}

namespace {

// Returns in a process that is a rank, with its rank info in the environment:
//   - RANK (or Open MPI's variable) is set: an outer launcher started this process; -n, if given,
//     must equal its number of ranks;
//   - without -n, Slurm's variable is set: srun started this process. (With -n it does not count: a
//     batch script has these variables too.)
//   - one rank is wanted: this process is that rank, which suits a debugger best.
// Otherwise starts the ranks as processes of this program with the same arguments, waits for their
// end, and throws Exit with their code.
void become_rank(const RanksOption& option) {
  if (is_rank(option)) return;
  LaunchOptions options = option.launch;
  options.ranks = option.wanted();
  // With members, another process may take the place of rank 0, which prints.
  options.rank_0_bare = !options.members;
  if (options.ranks == 1 && !options.members) return become_the_only_rank(options);
  options.command = own_command();
  throw Exit{launch(options)};
}

// If `body` throws, aborts every group: another rank may be waiting in any of them.
template <class Body>
void run_or_abort(std::span<collectives::ProcessGroup> groups, Body body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    for (auto& group : groups) group.abort(fmt::format("rank {} is out of memory", group.rank()));
    throw;
  } catch (const std::exception& error) {
    for (auto& group : groups) group.abort(error.what());
    throw;
  }
}

collectives::RankInfo prepared_rank(const std::function<void(int ranks, int ranks_here)>& prepare) {
  const collectives::RankInfo rank_info = collectives::rank_info_from_environment();
  try {
    prepare(rank_info.size, rank_info.local_size);
  } catch (const Error& error) {
    const bool wrong_usage = dynamic_cast<const UsageError*>(&error) != nullptr;
    if (another_rank_reports()) throw Exit{wrong_usage ? 2 : 1};
    throw;
  }
  return rank_info;
}

}  // namespace

void run_on_ranks(
    const RanksOption& option, const std::vector<std::string>& backends,
    const std::function<void(std::span<collectives::ProcessGroup> groups, int ranks_here)>& body,
    const std::function<void(int ranks, int ranks_here)>& prepare) {
  const bool threads = std::ranges::find(backends, "threads") != backends.end();
  refuse_if(
      threads && backends.size() > 1,
      "--backend threads keeps all ranks in one process, so no other backend can take turns with "
      "it: name it alone");
  if (threads || !is_rank(option)) prepare(option.wanted(), option.wanted());
  refuse_if(
      threads && outer_launcher(),
      "--backend threads keeps all ranks in one process, but an outer launcher started this one "
      "as one of several: leave out --backend, or run without a launcher");
  if (threads)
    return collectives::run_threads(option.wanted(), [&](collectives::ProcessGroup& group) {
      body(std::span(&group, 1), option.wanted());
    });
  become_rank(option);
  const collectives::RankInfo rank_info = prepared_rank(prepare);
  std::vector<collectives::ProcessGroup> groups;
  for (const auto& backend : backends)
    groups.push_back(collectives::ProcessGroup::over(backend, rank_info));
  run_or_abort(groups, [&] { body(groups, rank_info.local_size); });
}

void run_on_ranks(const RanksOption& option,
                  const std::function<void(collectives::ProcessGroup& group, int ranks_here)>& body,
                  const std::function<void(int ranks, int ranks_here)>& prepare) {
  run_on_ranks(
      option, {option.backend},
      [&](std::span<collectives::ProcessGroup> groups, int ranks_here) {
        body(groups[0], ranks_here);
      },
      prepare);
}

void run_on_processes(const RanksOption& option,
                      const std::function<void(const collectives::RankInfo&)>& body,
                      const std::function<void(int ranks, int ranks_here)>& prepare) {
  if (!is_rank(option)) prepare(option.wanted(), option.wanted());
  become_rank(option);
  body(prepared_rank(prepare));
}

}  // namespace ringside::cli
