// The options of a socket that carries data.
#pragma once

#include <string>

namespace ringside::collectives {

// Sets the options of a connected TCP socket, according to its route. Between ranks of one host
// nothing is ever congested, and an algorithm meant for networks costs a third of the bandwidth
// (docs/performance.md). Such a socket gets the plainest congestion control, reno, which every
// kernel allows to every user; it keeps at most 256 KiB unsent, which stay warm in cache. On other
// routes the system's defaults stand. Returns the name of the congestion control in force, or
// "unknown" where the system does not tell.
std::string set_up_data_socket(int socket);

}  // namespace ringside::collectives
