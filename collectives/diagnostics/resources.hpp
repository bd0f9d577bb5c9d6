// The limits that a process of a large job may exceed, in sentences that say what to do.
#pragma once

#include <string>

namespace ringside::collectives {

// Throws Error if `error`, a value of errno, says that a limit on open files is exceeded; returns
// otherwise. `who` is "rank 3".
void check_open_files(int error, const std::string& who);

// Why `who` finds no free port on its host, and what to do.
std::string no_free_port(const std::string& who);

}  // namespace ringside::collectives
