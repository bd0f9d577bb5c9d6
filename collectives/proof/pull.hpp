// A schedule from the receiver's side, for ranks that read each other's memory
// (one_sided_collectives.hpp): instead of a message, the receiver waits until the sender has got to
// the step, and reads the chunk where it lies.
//
// A message is a copy, and a copy stays as it is. Here the sender may write its chunk again in a
// later step, or in this very one, and the receiver must have read it by then. Nothing waits for
// that: so it must FOLLOW from the waiting that there is. In the ring it does: what is put in place
// of a chunk is the sum that has passed all other ranks, which read the chunk to pass it. In
// recursive doubling it does not: two ranks read each other's whole buffer while they add to it.
// pull_plan() follows who can know what of whom, and refuses.
#pragma once

#include <vector>

#include "collectives/algorithms/schedule.hpp"
#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives {

// Of rank `rank`, from the schedules of all ranks of an all_reduce. Throws Error: somewhere a chunk
// would be written before it has been read; a rank receives nothing in some step, or several
// chunks; there are more ranks or steps than a plan has room for.
one_sided::PullPlan pull_plan(const std::vector<Schedule>& schedules, int rank);

}  // namespace ringside::collectives
