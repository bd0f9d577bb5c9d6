// Libraries to compare with, each behind the Backend seam. In a build without the library, making
// its backend throws Error that says what to install; programs can ask before.
#pragma once

#include <memory>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::cli {

// Gloo over TCP with its default algorithms (all_reduce: ring). The ranks find each other with our
// rendezvous, and its port is free again when this returns. There is no reduce_scatter, gather,
// scatter or all_to_all: these calls throw Error.
bool gloo_is_here();
std::unique_ptr<collectives::Backend> make_gloo_backend(const collectives::RankInfo& rank_info);

// MPI among the processes that one mpirun has started (MPI_COMM_WORLD), with the algorithms that
// MPI chooses. Only one can be made in a process: it calls MPI_Init, and MPI_Finalize when
// destroyed. 16-bit types throw Error, because MPI does not have them.
bool mpi_is_here();
std::unique_ptr<collectives::Backend> make_mpi_backend();

}  // namespace ringside::cli
