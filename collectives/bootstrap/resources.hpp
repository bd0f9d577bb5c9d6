// What a process of a large job runs out of, in sentences that say what to do.
#pragma once

#include <string>

namespace ringside::collectives {

// Throws Error if `error`, a value of errno, says that a limit on open files has been reached;
// returns otherwise. `who` is "rank 3".
void check_open_files(int error, const std::string& who);

// Why there is no free port on this host for `who`, and what to do.
std::string no_free_port(const std::string& who);

}  // namespace ringside::collectives
