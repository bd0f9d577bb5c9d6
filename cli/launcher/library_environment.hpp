// What libraries read from the environment before main().
#pragma once

#include <string>

namespace ringside::cli {

// OpenMP's threads spin while they wait for work. Where other programs use the cores too, a step
// takes ten times as long: a thread spins in the time in which another one would compute. So they
// sleep, by OMP_WAIT_POLICY=passive, unless the user has chosen (OMP_WAIT_POLICY or
// GOMP_SPINCOUNT). OpenBLAS is asked for `blas_kernel` with OPENBLAS_CORETYPE; empty: it chooses.
//
// The libraries read these variables before main(), so this function sets them and executes this
// program again; the ranks of a job inherit them. It returns if there is nothing to set, under a
// debugger, and if the program cannot be executed again.
void set_environment_of_libraries(const std::string& blas_kernel);

}  // namespace ringside::cli
