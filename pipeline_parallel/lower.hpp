// Lowering: adds to a schedule of computations the messages between ranks, and the reduction of
// each stage's gradients.
//
// The model of communication, which the executor keeps and verify() proves:
//
//   - A LANE is a directed edge from one rank to another: rank a to rank b is one lane, rank b to
//     rank a another. All that goes from a to b uses it: activations and gradients, of all stages.
//     It carries its messages one after another, in the order of the sends.
//   - A send is asynchronous. The rank goes on; the lane holds the message until it is received.
//     Only the next send on the SAME lane may have to wait for that.
//   - A receive waits until its message is there.
//   - Two stages on one rank pass tensors to each other without a message.
//
// Sends must not block: under 1F1B rank 1 sends a gradient to rank 0 while rank 0 sends an
// activation to rank 1, so each would wait for the other to receive (proof/circle.hpp draws this
// circle). Lanes must not be shared by both directions, for the same reason.
#pragma once

#include "pipeline_parallel/schedule.hpp"

namespace ringside::pipeline_parallel {

// A send follows the computation that makes its tensor; a receive stands where its tensor is
// needed. If the sender sends another message first on the same lane, then the receiver also
// receives that one first. Each stage's reduction follows its last backward.
//
// Messages are added if the schedule has none, and reductions if it has none. So a file that lists
// its own messages keeps them.
Schedule lower(const Schedule& schedule);

}  // namespace ringside::pipeline_parallel
