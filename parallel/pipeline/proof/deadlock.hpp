// Deadlock: finds ranks that wait for each other in a circle.
//
// Every rank goes as far as it can, until nobody moves. If a rank has not reached its end, it waits
// in a receive or a send for another rank, which waits as well; whoever follows the waiting comes
// back to a rank that was there before. That is the circle.
//
// 1F1B of 2 ranks, if sends blocked until they are received:
//
//     rank 0   F0  send F0  F1  send F1 ........ waits for rank 1 to receive
//     rank 1       receive F0  F0  B0  send B0 . waits for rank 0 to receive
#pragma once

#include <string>

#include "parallel/pipeline/proof/walk.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// "deadlock where sends are buffered: rank 0 waits in 0RECV_B0 for 1SEND_B0 of rank 1; rank 1 waits
// in 1RECV_F1 for 0SEND_F1 of rank 0". Empty if every rank gets to its end.
//
// Each send of the lowered schedule must have its receive, and each receive its send, in the same
// order on each lane.
std::string find_deadlock(const Schedule& lowered, Sends sends);

}  // namespace ringside::pipeline_parallel
