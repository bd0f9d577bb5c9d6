// Who sits where. `ringside bench` starts, for each number of ranks, one job; all processes of a
// job measure in turn, so that whatever the machine does meanwhile it does to all backends alike. A
// job is one SET of ranks for our own backends, and one more for each way of running MPI, whose
// ranks only mpirun can start:
//
//   ringside bench -n 4 --backends tcp,mpi,mpi_tcp      set 0   ranks 0..3                        launched
//                                                       set 1   mpirun -n 4 ... -> ranks 0..3     for mpi
//                                                       set 2   mpirun -n 4 ... -> ranks 0..3     for mpi_tcp
//
// All of them meet in one group, `everybody`, in which those wait whose turn it is not, asleep.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/plan.hpp"
#include "cli/launcher/launcher.hpp"
#include "collectives/bootstrap/rank_info.hpp"

namespace ringside::cli {

struct BenchSeat {
  collectives::RankInfo own;        // among the ranks of this set
  collectives::RankInfo everybody;  // among the processes of all sets: set after set
  int set = 0;
  std::string rows_file;  // where rank 0 of set 0 leaves its figures for the process that started
                          // the job; empty: nowhere
};

// The set in which `backend` is measured, when these backends are.
int set_of(const BenchBackend& backend, const std::vector<std::string>& backends);

// True in a process that is, or is to start, ranks of a job: bench's own, or one that an outer
// launcher has started.
bool bench_has_a_seat();

// Finds this process's seat. In one that is to start MPI's ranks, does so instead: it becomes
// mpirun, and this does not return.
BenchSeat take_bench_seat(const BenchPlan& plan);

// Starts the job for `ranks` ranks and waits for its end; returns the exit code. `rows_file`: see
// above.
int start_bench_job(const BenchPlan& plan, int ranks, const std::string& rows_file);

}  // namespace ringside::cli
