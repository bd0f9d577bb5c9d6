#include "collectives/execution/plan.hpp"

#include <algorithm>

namespace ringside::collectives {
namespace {

ChunkRange source_of(const Send& send) {
  return {send.input.value_or(send.chunks.first), send.chunks.count};
}

// Where the data lies at each step.
void locate_data(Plan& p, const Schedule& schedule, bool in_place) {
  p.received.assign(schedule.chunks, false);
  const auto received = [&](ChunkRange range) {
    return std::count(p.received.begin() + range.first,
                      p.received.begin() + range.first + range.count, true);
  };
  const auto mixed = [&](ChunkRange range) {
    return received(range) > 0 && received(range) < range.count;
  };
  for (const auto& [send, receive] : schedule.steps) {
    p.from_input.push_back(send && (send->input || received(send->chunks) == 0));
    p.first_touch.push_back(receive && received(receive->chunks) == 0);
    if (send) {
      p.single_chunks = p.single_chunks && send->chunks.count <= 1;
      if (send->input && in_place && received(source_of(*send)) > 0) p.keeps_input = true;
      if (!send->input && mixed(send->chunks)) p.starts_in_output = true;
    }
    if (receive) {
      p.single_chunks = p.single_chunks && receive->chunks.count <= 1;
      if (receive->action == Action::add && mixed(receive->chunks)) p.starts_in_output = true;
      std::fill_n(p.received.begin() + receive->chunks.first, receive->chunks.count, true);
    }
  }
  if (!p.starts_in_output) return;
  p.first_touch.assign(p.first_touch.size(), false);
  for (std::size_t s = 0; s < p.from_input.size(); ++s)
    p.from_input[s] = p.from_input[s] && schedule.steps[s].send->input;
}

// What a receive must not overwrite before the send of step `s` is done.
ChunkRange reads(const Plan& p, const Schedule& schedule, bool in_place, int s) {
  const std::optional<Send>& send = schedule.steps[s].send;
  const bool from_other_memory = p.from_input[s] && (!in_place || p.keeps_input);
  return send && !from_other_memory ? source_of(*send) : ChunkRange{0, 0};
}

// The last step so far that touched each chunk. With these tables the time of plan() grows with the
// number of steps, not with its square: the cost model plans for every rank.
class LastStep {
 public:
  explicit LastStep(int chunks) : step_(chunks, Plan::none) {}
  void touch(ChunkRange range, int step) {
    std::fill_n(step_.begin() + range.first, range.count, step);
    latest_ = step;
  }
  int of(ChunkRange range) const {
    int last = Plan::none;
    for (int c = range.first; c < range.first + range.count; ++c) last = std::max(last, step_[c]);
    return last;
  }
  int of_all() const { return latest_; }

 private:
  std::vector<int> step_;  // [chunk]
  int latest_ = Plan::none;
};

}  // namespace

Plan plan(const Schedule& schedule, bool in_place) {
  Plan p;
  locate_data(p, schedule, in_place);
  const auto& steps = schedule.steps;
  const int n = static_cast<int>(steps.size());
  p.send_needs.resize(n);
  p.receive_needs.resize(n);
  p.reused_after.assign(n, Plan::none);
  LastStep received(schedule.chunks), read(schedule.chunks);
  for (int s = 0; s < n; ++s) {
    const auto& [send, receive] = steps[s];
    if (send && !send->input) {
      // An empty message must follow all of its sender's earlier receives: a barrier counts on it.
      const int d = send->chunks.count == 0 ? received.of_all() : received.of(send->chunks);
      if (d != Plan::none) p.send_needs[s] = {d, steps[d].receive->chunks == send->chunks};
    }
    if (const ChunkRange source = reads(p, schedule, in_place, s); source.count > 0)
      read.touch(source, s);
    if (!receive) continue;
    if (const int d = read.of(receive->chunks); d != Plan::none)
      p.receive_needs[s] = {d, reads(p, schedule, in_place, d) == receive->chunks};
    received.touch(receive->chunks, s);
  }
  for (int s = 0; s < n; ++s)
    if (steps[s].receive) p.reused_after[s] = read.of(steps[s].receive->chunks);
  return p;
}

}  // namespace ringside::collectives
