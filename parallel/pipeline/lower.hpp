// Lowering: adds to a schedule of computations the messages between ranks, and the reduction of
// each stage's gradients.
//
// The model of communication, which the executor keeps and verify() proves:
//
//   - A LANE is a directed edge: from one rank to another, for activations or for gradients. It
//     carries its messages one after another, in the order of the sends.
//   - A send is asynchronous. The rank goes on; the lane holds the message until it is received.
//     Only the next send on the SAME lane may have to wait for that.
//   - A receive waits until its message is there.
//   - Two stages on one rank pass tensors to each other without a message.
//
// Sends must not block. Under 1F1B rank 0 sends an activation to rank 1 while rank 1 sends a
// gradient to rank 0: each would wait for the other to receive (proof/deadlock.hpp draws it).
//
// Activations and gradients must not share a lane. On two ranks the stage before and the stage
// behind are on the same rank, so the interleaved schedule sends both from rank 0 to rank 1; on one
// lane an activation that is not needed yet would hold up the gradient that is.
#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

struct Lane {
  int from, to;    // ranks
  bool gradients;  // or else activations
  auto operator<=>(const Lane&) const = default;
};

// The lane of a send or a receive.
Lane lane_of(const Schedule& schedule, const Action& message);

// All lanes that the placement of the stages needs, ascending. The same on every rank.
std::vector<Lane> lanes_of(const Schedule& schedule);

// The message that a computation waits for, and the one that carries away what it makes. None where
// the neighbouring stage does not exist or is on the same rank; W has none.
std::optional<Action> receive_before(const Schedule& schedule, const Action& action);
std::optional<Action> send_after(const Schedule& schedule, const Action& action);

// A send follows the computation that makes its tensor; a receive stands where its tensor is
// needed. If the sender sends another message first on the same lane, then the receiver also
// receives that one first. Each stage's reduction follows its last B or W.
//
// Messages are added if the schedule has none, and reductions if it has none. So a file that lists
// its own messages keeps them.
// Stages and micro-batches of all actions must exist, which verify() checks first.
Schedule lower(const Schedule& schedule);

}  // namespace ringside::pipeline_parallel
