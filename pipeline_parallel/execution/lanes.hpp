// Lanes: the connections over which the ranks of a pipeline pass activations and gradients.
//
//     rank 0  ──▶  rank 1  ──▶  rank 2          a lane for each directed edge between two ranks
//             ◀──          ◀──                  (and 2 ──▶ 0, 0 ──▶ 2 where the stages form a loop)
//
// A lane is a process group of two ranks, so it has connections and a queue of its own. A message
// that waits in one lane never holds up another lane, or a collective. With two ranks in a loop,
// the next and the previous rank are one and the same: still each direction has its lane.
//
// A lane carries one message at a time, as lower.hpp defines it: what verify() proves is what runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "pipeline_parallel/schedule.hpp"

namespace ringside::pipeline_parallel {

class Lanes {
 public:
  // Makes the lanes between the stages of `schedule`. `group` has a rank for each rank of the
  // schedule. Every rank must construct its lanes at the same point of its calls, because making
  // them is a series of splits; lanes made on demand would hang. The lanes may outlive the group.
  Lanes(collectives::ProcessGroup& group, const Schedule& schedule);

  // Starts to send a contiguous tensor to rank `to`, after the last message to `to` has been
  // received. Keeps the tensor alive until it has been received; leave its numbers alone.
  void send(autograd::Tensor tensor, int to, const std::string& label);

  // Waits until the next message from rank `from` is in `tensor`, which must have the shape and
  // dtype of the message. The label must be the sender's.
  void receive(const autograd::Tensor& tensor, int from, const std::string& label);

  // Frees the tensors that have been received by now. Does not wait. Throws what a send threw.
  void release_received();
  // Waits until everything that was sent has been received.
  void wait_for_sends();

  // Makes the calls of all neighbours throw `cause`, and ends those of this rank. Nothing can be
  // sent afterwards.
  void abort(const std::string& cause) noexcept;

  // Bytes that this rank has sent to rank `to` since the lanes were made; 0 without a lane.
  std::uint64_t bytes_sent(int to) const;
  // Seconds in which this rank has waited in the lanes.
  double seconds_waited() const;

 private:
  struct Lane {
    collectives::ProcessGroup group;  // rank 0 sends, rank 1 receives
    autograd::Tensor under_way = {};
    std::optional<collectives::Work> work = {};
  };
  Lane& lane(std::map<int, Lane>& lanes, int other, const char* direction);
  static void wait(Lane& lane);

  std::map<int, Lane> to_, from_;  // by the other rank
};

// The directed edges (from, to) between the ranks of `schedule`, in rounds: within a round no rank
// has two edges. So each round is one split.
std::vector<std::vector<std::pair<int, int>>> rounds_of_edges(const Schedule& schedule);

}  // namespace ringside::pipeline_parallel
