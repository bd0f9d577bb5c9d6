// Whether a debugger holds a rank: a rank that stands at a breakpoint is not lost.
#pragma once

#include <cstdint>

namespace ringside::collectives {

// Whether a debugger is attached to a process of this host (TracerPid in /proc/PID/status). False
// for a process that this one cannot see.
bool has_debugger(std::int64_t process);

}  // namespace ringside::collectives
