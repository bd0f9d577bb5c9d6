// Pull plans: a schedule from the receiver's side, for ranks that read each other's memory
// (one_sided/collectives.hpp). Instead of receiving a message, a rank waits until its peer has
// reached the step, and reads the chunk where it lies.
//
// A message is a copy, and does not change any more. Here the peer may write to its chunk in a
// later step, or in the same one, and the reader must be done by then. There is no extra wait for
// that: it must FOLLOW from the waits that the plan has. In the ring it does: what overwrites a
// chunk is the sum that has passed all other ranks, and they read the chunk before they passed it
// on. In recursive doubling it does not: two ranks read each other's whole buffer while both add to
// it. pull_plan() tracks what each rank knows of the others, and refuses such schedules.
#pragma once

#include <vector>

#include "collectives/algorithms/schedule.hpp"
#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives {

// The plan of rank `rank`, from all ranks' schedules of an all_reduce. Throws Error if a chunk
// could be written before it is read, if a rank does not receive exactly one chunk in each step, or
// if there are more ranks or steps than a plan has room for.
one_sided::PullSchedule pull_plan(const std::vector<Schedule>& schedules, int rank);

}  // namespace ringside::collectives
