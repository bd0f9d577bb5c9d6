// All ranks of a job as threads of one process: for tests, and for a debugger.
#pragma once

#include <functional>

#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"

namespace ringside::collectives {

// Runs run(r) for r from 0 to size - 1, rank 0 on this thread and each other on one of its own, and
// returns when all have ended. `run` must not throw. If a thread cannot be started, none runs, and
// Error says so.
void run_on_threads(int size, const std::function<void(int rank)>& run);

// Runs `body` on `size` ranks, each a thread of this process with a group over the threads
// transport, and returns when all have ended. If `body` throws on a rank, the other ranks' calls
// fail, and run_threads throws the first cause. Throws also as run_on_threads() does.
void run_threads(int size, const std::function<void(ProcessGroup&)>& body,
                 const GroupOptions& options = group_options_from_environment());

}  // namespace ringside::collectives
