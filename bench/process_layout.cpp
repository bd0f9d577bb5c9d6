#include "bench/process_layout.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "cli/launcher/processes/rank_process.hpp"
#include "cli/launcher/ranks.hpp"

namespace ringside::cli {
namespace {

// How bench tells the processes of its job what they are.
constexpr const char* ranks_variable = "RINGSIDE_BENCH_RANKS";
constexpr const char* set_variable = "RINGSIDE_BENCH_SET";
constexpr const char* rows_variable = "RINGSIDE_BENCH_ROWS";

std::vector<const BenchBackend*> under_mpirun(const std::vector<std::string>& backends) {
  std::vector<const BenchBackend*> result;
  for (const auto& name : backends)
    if (const auto& backend = bench_backend_named(name); backend.ranks_run_as == RanksRunAs::mpirun)
      result.push_back(&backend);
  return result;
}

// Replaces this process, which the launcher started, by mpirun.
[[noreturn]] void become_mpirun(const BenchBackend& backend, int set, int ranks) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    ::unsetenv(name);
  for (const auto& [name, value] : backend.environment) ::setenv(name, value, 1);
  ::setenv(set_variable, std::to_string(set).c_str(), 1);
  // A laptop has fewer cores than ranks, a container runs as root, and our own ranks are not bound
  // to cores either.
  std::vector<std::string> command{
      "mpirun",    "-n",  std::to_string(ranks), "--oversubscribe", "--allow-run-as-root",
      "--bind-to", "none"};
  command.insert(command.end(), backend.mpirun_options.begin(), backend.mpirun_options.end());
  for (const auto& word : own_command()) command.push_back(word);
  const std::vector<char*> arguments = exec_arguments(command);
  ::execvp(arguments[0], arguments.data());
  fail("cannot start mpirun for the backend {}: {}; install openmpi-bin, or leave {} out",
       backend.name, std::strerror(errno), backend.name);
}

// The rank info of one of `size` local ranks that meet where `meeting` says.
collectives::RankInfo local_rank_info(int rank, int size, const collectives::RankInfo& meeting) {
  collectives::RankInfo rank_info = meeting;
  rank_info.rank = rank_info.local_rank = rank;
  rank_info.size = rank_info.local_size = size;
  return rank_info;
}

}  // namespace

int set_of(const BenchBackend& backend, const std::vector<std::string>& backends) {
  if (backend.ranks_run_as != RanksRunAs::mpirun || !environment(ranks_variable)) return 0;
  const auto sets = under_mpirun(backends);
  return 1 + static_cast<int>(std::ranges::find(sets, &backend) - sets.begin());
}

bool is_bench_process() {
  return environment("RANK") || environment("OMPI_COMM_WORLD_RANK");
}

ProcessLayout find_process_layout(const BenchOptions& options) {
  ProcessLayout layout;
  const auto ranks = integer_environment(ranks_variable, 1, 1 << 20);
  if (!ranks) {  // a job of an outer launcher: one set, which can be MPI's if mpirun started it
    layout.in_set = layout.in_job = collectives::rank_info_from_environment();
    const bool mpirun = environment("OMPI_COMM_WORLD_RANK").has_value();
    for (const auto* backend : under_mpirun(options.backends))
      require(mpirun && backend->name == "mpi",
              "{} starts its own ranks: leave it out, or run bench without an outer launcher",
              backend->name);
    return layout;
  }
  const auto sets = under_mpirun(options.backends);
  const int n = static_cast<int>(*ranks), world = n * (1 + static_cast<int>(sets.size()));
  layout.set = static_cast<int>(integer_environment(set_variable, 0, 1 << 10).value_or(0));
  const bool child_of_mpirun = layout.set > 0;
  const auto rank =
      *integer_environment(child_of_mpirun ? "OMPI_COMM_WORLD_RANK" : "RANK", 0, 1 << 20);
  if (!child_of_mpirun && rank >= n)
    become_mpirun(*sets.at(static_cast<std::size_t>(rank - n)), static_cast<int>(rank) - n + 1, n);

  collectives::RankInfo meeting;
  meeting.master_port = static_cast<std::uint16_t>(*integer_environment("MASTER_PORT", 1, 65535));
  collectives::use_port_of_launcher(meeting);
  meeting.job_key = environment("RINGSIDE_JOB_KEY").value_or("");
  layout.in_set = local_rank_info(static_cast<int>(rank), n, meeting);
  layout.in_job = local_rank_info(layout.set * n + static_cast<int>(rank), world, meeting);
  layout.rows_file = environment(rows_variable).value_or("");
  return layout;
}

int start_bench_job(const BenchOptions& options, int ranks, const std::string& rows_file) {
  ::setenv(ranks_variable, std::to_string(ranks).c_str(), 1);
  ::setenv(rows_variable, rows_file.c_str(), 1);
  LaunchOptions job;
  job.ranks = ranks + static_cast<int>(under_mpirun(options.backends).size());
  job.rank_0_bare = true;
  job.command = own_command();
  const int code = launch(job);
  ::unsetenv(ranks_variable);
  ::unsetenv(rows_variable);
  return code;
}

}  // namespace ringside::cli
