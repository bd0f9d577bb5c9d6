// Replaces mpi.cpp in a build without MPI.
#include "collectives/backends/library_backends.hpp"

namespace ringside::collectives {

bool mpi_is_here() {
  return false;
}

std::unique_ptr<Backend> make_mpi_backend() {
  fail("this build has no MPI: install libopenmpi-dev, then configure and build again");
}

}  // namespace ringside::collectives
