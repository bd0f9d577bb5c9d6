#include "collectives/execution/data_flow.hpp"

#include <algorithm>

namespace ringside::collectives {
namespace {

// Where the data lies at each step.
void locate_data(DataFlow& flow, const Schedule& schedule, bool in_place) {
  flow.received.assign(schedule.chunks, false);
  const auto received = [&](ChunkRange range) {
    int chunks = 0;
    for (int i = 0; i < range.count; ++i) chunks += flow.received[range.at(i)] ? 1 : 0;
    return chunks;
  };
  const auto mixed = [&](ChunkRange range) {
    return received(range) > 0 && received(range) < range.count;
  };
  for (const auto& [send, receive] : schedule.steps) {
    flow.from_input.push_back(send && (send->input || received(send->taken()) == 0));
    flow.first_touch.push_back(receive && received(receive->chunks) == 0);
    if (send) {
      flow.single_chunks = flow.single_chunks && send->chunks.count <= 1;
      if (send->input && in_place && received(send->taken()) > 0) flow.keeps_input = true;
      if (!send->input && mixed(send->taken())) flow.starts_in_output = true;
    }
    if (receive) {
      flow.single_chunks = flow.single_chunks && receive->chunks.count <= 1;
      if (receive->action == Action::add && mixed(receive->chunks)) flow.starts_in_output = true;
      for (int i = 0; i < receive->chunks.count; ++i) flow.received[receive->chunks.at(i)] = true;
    }
  }
  if (!flow.starts_in_output) return;
  flow.first_touch.assign(flow.first_touch.size(), false);
  for (std::size_t s = 0; s < flow.from_input.size(); ++s)
    flow.from_input[s] = flow.from_input[s] && schedule.steps[s].send->input;
}

// What a receive must not overwrite before the send of step `s` is done.
ChunkRange reads(const DataFlow& flow, const Schedule& schedule, bool in_place, int s) {
  const std::optional<Send>& send = schedule.steps[s].send;
  const bool from_other_memory = flow.from_input[s] && (!in_place || flow.keeps_input);
  return send && !from_other_memory ? send->taken() : ChunkRange{0, 0};
}

// The last step so far that touched each chunk. With these tables the time of data_flow() grows
// with the number of steps, not with its square: the cost model asks for every rank.
class LastStep {
 public:
  explicit LastStep(int chunks) : step_(chunks, DataFlow::none) {}
  void touch(ChunkRange range, int step) {
    for (int i = 0; i < range.count; ++i) step_[range.at(i)] = step;
    latest_ = step;
  }
  int of(ChunkRange range) const {
    int last = DataFlow::none;
    for (int i = 0; i < range.count; ++i) last = std::max(last, step_[range.at(i)]);
    return last;
  }
  int of_all() const { return latest_; }

 private:
  std::vector<int> step_;  // [chunk]
  int latest_ = DataFlow::none;
};

}  // namespace

DataFlow data_flow(const Schedule& schedule, bool in_place) {
  DataFlow flow;
  locate_data(flow, schedule, in_place);
  const auto& steps = schedule.steps;
  const int n = static_cast<int>(steps.size());
  flow.send_needs.resize(n);
  flow.receive_needs.resize(n);
  flow.reused_after.assign(n, DataFlow::none);
  LastStep received(schedule.chunks), read(schedule.chunks);
  for (int s = 0; s < n; ++s) {
    const auto& [send, receive] = steps[s];
    if (send && !send->input) {
      // An empty message must follow all of its sender's earlier receives: a barrier counts on it.
      const ChunkRange taken = send->taken();
      const int d = taken.count == 0 ? received.of_all() : received.of(taken);
      if (d != DataFlow::none) flow.send_needs[s] = {d, steps[d].receive->chunks == taken};
    }
    if (const ChunkRange source = reads(flow, schedule, in_place, s); source.count > 0)
      read.touch(source, s);
    if (!receive) continue;
    if (const int d = read.of(receive->chunks); d != DataFlow::none)
      flow.receive_needs[s] = {d, reads(flow, schedule, in_place, d) == receive->chunks};
    received.touch(receive->chunks, s);
  }
  for (int s = 0; s < n; ++s)
    if (steps[s].receive) flow.reused_after[s] = read.of(steps[s].receive->chunks);
  return flow;
}

}  // namespace ringside::collectives
