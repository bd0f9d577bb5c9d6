// Replaces mpi.cpp in a build without MPI.
#include "bench/backends/library_backends.hpp"

namespace ringside::cli {

bool mpi_is_here() {
  return false;
}

std::unique_ptr<collectives::Backend> make_mpi_backend() {
  fail("this build has no MPI: install libopenmpi-dev, then configure and build again");
}

}  // namespace ringside::cli
