// Bus bandwidth: a measured time as the bandwidth of a link.
#pragma once

#include "collectives/call.hpp"

namespace ringside::collectives {

// The bytes per second that each link of a ring carries if `call` takes `seconds` on `ranks` ranks,
// so that different collectives and numbers of ranks compare with one another and with the
// hardware. 0 for 0 seconds. Source: nccl-tests, PERFORMANCE.md.
double bus_bandwidth(const Call& call, int ranks, double seconds);

}  // namespace ringside::collectives
