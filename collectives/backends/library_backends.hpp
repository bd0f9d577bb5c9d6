// Libraries to compare with, each behind the Backend seam. Where a build has not found one, asking
// for it throws Error, which says what to install; whether it is there can be asked beforehand.
#pragma once

#include <memory>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::collectives {

// Gloo over TCP, its default algorithms (all_reduce: ring). The ranks find each other as ours do,
// through meet(): `place` is used up and its port free again when this returns. Gloo has no
// reduce_scatter of this form: that call throws Error, as do gather and its kin.
bool gloo_is_here();
std::unique_ptr<Backend> make_gloo_backend(const RankInfo& rank_info);

// MPI among the processes that one mpirun has started: MPI_COMM_WORLD, MPI's own choice of
// algorithm. It can be made once in the life of a process, and calls MPI_Init and, when destroyed,
// MPI_Finalize. Types of 16 bits throw Error: MPI has no name for them.
bool mpi_is_here();
std::unique_ptr<Backend> make_mpi_backend();

}  // namespace ringside::collectives
