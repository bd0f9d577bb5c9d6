// The process layout of `ringside bench`: which process is which rank for which backend.
//
// For each number of ranks, bench starts one job. All processes of a job measure in turn, so that
// changes of the machine during the run affect all backends alike. A job has one SET of ranks for
// our own backends, and one more set for each way to run MPI, because only mpirun can start MPI's
// ranks:
//
//   ringside bench -n 4 --backends tcp,mpi,mpi_tcp
//
//       set 0   ranks 0..3                       processes of the launcher, for tcp
//       set 1   mpirun -n 4 ... -> ranks 0..3    for mpi
//       set 2   mpirun -n 4 ... -> ranks 0..3    for mpi_tcp
//
// The processes of all sets form one group. Those that do not measure sleep in it.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_options.hpp"
#include "cli/launcher/launcher.hpp"
#include "collectives/bootstrap/rank_info.hpp"

namespace ringside::cli {

struct ProcessLayout {
  collectives::RankInfo in_set;  // among the ranks of this set
  collectives::RankInfo in_job;  // among the processes of all sets, set after set
  int set = 0;
  // Where rank 0 of set 0 leaves its figures for the process that started the job; empty: nowhere.
  std::string rows_file;
};

// The set that measures `backend` when bench measures these backends.
int set_of(const BenchBackend& backend, const std::vector<std::string>& backends);

// Whether this process belongs to a job: one that bench or an outer launcher has started.
bool is_bench_process();

// The layout as this process sees it. A process that starts the ranks of MPI becomes mpirun
// instead; then this does not return.
ProcessLayout find_process_layout(const BenchOptions& options);

// Starts the job for `ranks` ranks, waits for its end and returns its exit code. `rows_file`: see
// ProcessLayout.
int start_bench_job(const BenchOptions& options, int ranks, const std::string& rows_file);

}  // namespace ringside::cli
