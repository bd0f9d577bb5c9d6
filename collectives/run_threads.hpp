// All ranks of a job as threads of one process: for tests, and for a debugger.
#pragma once

#include <functional>

#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"

namespace ringside::collectives {

// Runs `body` on `size` ranks, each a thread of this process with a group over the threads
// transport, and returns when all have ended. If `body` throws on a rank or a thread cannot be
// started, the other ranks' calls fail, and run_threads throws the first cause.
void run_threads(int size, const std::function<void(ProcessGroup&)>& body,
                 const GroupOptions& options = group_options_from_environment());

}  // namespace ringside::collectives
