// The pipelined executor: all steps under way at once, as far as the data allows.
//
// A chunk travels in SLICES, and a slice is one message. While slice 1 of a chunk is on its way,
// slice 0 is added to this rank's data and sent on. Long chunks are divided into SEGMENTS of a few
// slices, and the whole schedule runs once for each segment. So a slice that was just added is
// still in cache when it is sent, and a chunk that only passes through a rank needs scratch memory
// for one segment, however long the buffer is:
//
//     chunk 2:  | slice 0  slice 1  slice 2  slice 3 | slice 4  slice 5  slice 6  slice 7 | slice 8
//               '---------- segment 0 ---------------'----------- segment 1 --------------'---- ...
//
// Sends go out in the order (segment, step, slice), and receives are taken in the same order.
// Nothing else is ordered: sends and receives each run ahead as far as the plan allows (plan.hpp).
//
// A one-shot all-reduce of a few bytes takes a shorter way where the transport has announcements
// (transport/shm/announcement.hpp): no message, no slice, the same additions in the same order.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "collectives/execution/executor.hpp"
#include "collectives/execution/plan.hpp"

namespace ringside::collectives {

class PipelinedExecutor final : public Executor {
 public:
  PipelinedExecutor(Transport& transport, ControlChannel& control, const ExecutorOptions& options);

 private:
  void move_data(const Task& task) override;
  bool may_announce(const Task& task) const;
  void add_announcements(const Task& task);
  void pipeline(const Plan& plan, const Task& task);
  const Plan& plan_for(const Schedule& schedule, bool in_place);
  Buffers prepare(const Plan& plan, const Task& task);

  Announcements* const announcements_;  // the transport's, or null
  const std::uint8_t one_shot_;         // the algorithm's number in the catalogue
  const std::size_t slice_bytes_;
  const int slices_per_segment_;
  std::map<std::pair<const Schedule*, bool>, Plan> plans_;
  std::vector<std::byte> scratch_, kept_input_, workspace_;  // kept between calls
};

}  // namespace ringside::collectives
