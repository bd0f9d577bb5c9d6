// How OpenMP's idle threads wait.
#pragma once

namespace ringside::cli {

// OpenMP's threads spin while they wait for work. Where other programs use the cores too, a step
// takes ten times as long: a thread spins in the time in which another one would compute. So they
// sleep, by OMP_WAIT_POLICY=passive, which the ranks of a job inherit.
//
// The OpenMP library reads the variable before main(), so this function sets it and executes this
// program again. It returns if the user has chosen (OMP_WAIT_POLICY or GOMP_SPINCOUNT), under a
// debugger, and if the program cannot be executed again.
void let_idle_threads_sleep();

}  // namespace ringside::cli
