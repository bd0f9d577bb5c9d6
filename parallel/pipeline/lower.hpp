// Lowering: adds to a schedule of computations the messages between ranks, and the reduction of
// each stage's gradients.
//
// The model of communication, for which verify() proves that nothing hangs. The executor needs
// less: its sends never wait, and messages have tags, so that none waits for another.
//
//   - A LANE is a directed edge: from one rank to another, for activations or for gradients. It
//     carries its messages one after another, in the order of the sends.
//   - A send is asynchronous. The rank goes on; the lane holds the message until its receive is
//     posted. Only the next send on the SAME lane may have to wait for that.
//   - A receive is posted: it gives the message a place to arrive in, and waits for nothing. The
//     computation that needs the message waits until it is there.
//   - Two stages on one rank pass tensors to each other without a message.
//
//     rank 0   F0 send F0   F1 send F1   post B0   B0 ...
//     rank 1      post F0   F0 .......   post F1   B0 send B0
//
// So receives are posted ahead. If rank 1 posted a receive only right before it needs the message,
// a rank with several stages could have to wait in a send for a rank that waits for it, where no
// computations wait in a circle: the deadlock would be made by the receives alone.
//
// Activations and gradients do not share a lane. On two ranks the stage before and the stage behind
// are on the same rank, so the interleaved schedule sends both from rank 0 to rank 1.
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

// The message that a computation waits for, and the one that carries away what it makes. None where
// the neighbouring stage does not exist or is on the same rank; W has none.
std::optional<Action> receive_before(const Schedule& schedule, const Action& action);
std::optional<Action> send_after(const Schedule& schedule, const Action& action);

// A send follows the computation that makes its tensor. Its receive is posted at the same time, if
// every action took one unit of time: as early as the message can come, and not earlier, because
// until it is used it takes memory. So both ends of a lane have the same order. Each stage's
// reduction follows its last B or W.
//
// Messages are added if the schedule has none, and reductions if it has none. So a file that lists
// its own messages keeps them.
// Stages and micro-batches of all actions must exist, which verify() checks first.
Schedule lower(const Schedule& schedule);

}  // namespace ringside::pipeline_parallel
