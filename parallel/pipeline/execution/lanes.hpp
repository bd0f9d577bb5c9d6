// Lanes: the connections over which the ranks of a pipeline pass activations and gradients.
//
//     rank 0  ══▶  rank 1  ══▶  rank 2          for each directed edge between two ranks a lane for
//             ◀══          ◀══                  activations, one for gradients, or both (lower.hpp)
//
// A lane is a process group of two ranks, so it has connections and a queue of its own. A message
// that waits in one lane never holds up another lane, or a collective. If two ranks form a loop,
// the next and the previous rank are one and the same: still no lane serves two purposes.
//
// A lane carries one message at a time, as lower.hpp defines it: what verify() proves is what runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/scoped_work.hpp"

namespace ringside::pipeline_parallel {

class Lanes {
 public:
  // Makes the lanes between the stages of `schedule`, which must outlive them; they serve every
  // schedule with these stages on these ranks. `group` has a rank for each rank of the schedule and
  // may be destroyed before the lanes. Every rank must construct its lanes at the same point of its
  // calls, because making them is a series of splits; lanes made on demand would hang.
  Lanes(collectives::ProcessGroup& group, const Schedule& schedule);

  // Starts to send the contiguous tensor of a send action, after the last message on its lane has
  // been received. Keeps the tensor alive until it has been received; leave its numbers alone.
  void send(const Action& message, autograd::Tensor tensor);

  // Waits until the message of a receive action is in `tensor`, which must have the sender's shape
  // and dtype. The next message on the lane must be this one, or both ranks throw.
  void receive(const Action& message, const autograd::Tensor& tensor);

  // Frees the tensors that have been received by now. Does not wait. Throws what a send threw.
  void release_received();
  // Waits until everything that was sent has been received.
  void wait_for_sends();

  // Makes the calls of all neighbours throw `cause`, and ends those of this rank. Nothing can be
  // sent afterwards.
  void abort(const std::string& cause) noexcept;

  // Bytes that this rank has sent on a lane since the lanes were made; 0 if it is not its sender.
  std::uint64_t bytes_sent(const Lane& lane) const;
  std::uint64_t bytes_sent() const;  // on all lanes
  // Seconds in which this rank has waited in the lanes.
  double seconds_waited() const;

 private:
  struct Connection {
    collectives::ProcessGroup group;  // rank 0 sends, rank 1 receives
    autograd::Tensor under_way = {};
    std::optional<parallel::ScopedWork> work = {};  // after the tensor that it sends
  };
  Connection& connection(const Action& message);
  static void wait(Connection& connection);

  const Schedule& schedule_;
  std::map<Lane, Connection> connections_;  // of this rank
};

// The lanes of `schedule` in rounds: within a round no rank has two lanes, so one split makes them
// all.
std::vector<std::vector<Lane>> rounds_of_lanes(const Schedule& schedule);

}  // namespace ringside::pipeline_parallel
