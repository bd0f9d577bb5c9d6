// Deadlock: finds ranks that wait for each other in a circle.
//
// Every rank goes as far as it can, until nobody moves. If a rank has not reached its end, it waits
// in a computation or a send for another rank, which waits as well; whoever follows the waiting
// comes back to a rank that was there before. That is the circle.
//
// 2 ranks, where rank 0 runs too few forwards before its first backward:
//
//     rank 0   F0  B0 ........... waits for B0 of rank 1
//     rank 1       F0  F1 ....... waits for F1 of rank 0
#pragma once

#include <string>

#include "parallel/pipeline/proof/walk.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// "deadlock where sends are buffered: rank 0 waits in 0B0 for 1SEND_B0 of rank 1; rank 1 waits in
// 1F1 for 0SEND_F1 of rank 0". Empty if every rank gets to its end.
//
// Each send of the lowered schedule must have its receive, and each receive its send, in the same
// order on each lane.
std::string find_deadlock(const Schedule& lowered, Sends sends);

}  // namespace ringside::pipeline_parallel
