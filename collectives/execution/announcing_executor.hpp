// The announcing executor: calls in which every rank sends to every other one and nothing is
// forwarded, where a rank can show the others its data (Transport::announce()).
//
// In a ROUND every rank shows something, and reads what the others show it. So it waits once for
// all of them, instead of for one message after the other. Ranks that take turns on a core gain
// most, since each wait is a turn:
//
//     two_shot     round 1   shows each rank that rank's chunk of the input, and adds up its own
//                  round 2   shows everybody that sum, and copies theirs
//     direct       round 1 alone is a reduce-scatter, round 2 alone an all-gather
//     pairwise     round 1 with a copy instead of the sum
//     one_shot     the only round shows everybody the input, and each rank adds up all of them
//
// A long buffer takes these rounds for one SEGMENT of its chunks after the other. The additions are
// those of algorithms/direct/direct.hpp, in the same order: the bits are the other executors'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/execution/executor.hpp"
#include "collectives/transport/shm/announcement.hpp"

namespace ringside::collectives {

class AnnouncingExecutor final : public Executor {
 public:
  AnnouncingExecutor(Transport& transport, const ExecutorOptions& options);

  // Whether it can run the call: a direct one, over a transport with announcements.
  bool takes(const Task& task) const;
  void run(const Task& task) override;

 private:
  struct Segment;

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  std::size_t elements_at_once(const Call& call) const;  // of each chunk

  // The rounds.
  void reduce_scatter(const Segment& segment);
  void all_gather(const Segment& segment);
  void all_to_all(const Segment& segment);
  void all_reduce_at_once(const Segment& segment);

  // Shows payload(r) to every other rank r. Afterwards seen_ holds what they show this rank. The
  // message from one rank to another is that of step step_of(from, to) of the schedule.
  template <class Payload, class StepOf>
  void show(const Segment& segment, std::uint32_t slice, const StepOf& step_of,
            const Payload& payload);

  // Adds up what is seen, and this rank's `own`, in the order of ranks first, first + step, and so
  // on round all; `step` is 1 from rank 0 on, or -1. Block by block: a sum stays in the first-level
  // cache until it is complete.
  void add_up(const Call& call, const std::byte* own, std::span<std::byte> sum, int first,
              int step);

  const bool announces_;
  const std::size_t slice_bytes_;       // 0: as long as an announcement may be
  std::vector<Shown> shown_;            // [rank]
  std::vector<const std::byte*> seen_;  // [rank]
};

}  // namespace ringside::collectives
