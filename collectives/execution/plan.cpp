#include "collectives/execution/plan.hpp"

#include <algorithm>

namespace ringside::collectives {
namespace {

// An empty message must follow all of its sender's earlier receives: a barrier counts on it.
bool send_follows(ChunkRange sent, ChunkRange received_before) {
  return sent.count == 0 || overlap(sent, received_before);
}

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

}  // namespace

Plan plan(const Schedule& schedule, bool in_place) {
  Plan p;
  locate_data(p, schedule, in_place);
  const auto& steps = schedule.steps;
  const int n = static_cast<int>(steps.size());
  p.send_needs.resize(n);
  p.receive_needs.resize(n);
  p.reused_after.assign(n, Plan::none);
  for (int s = 0; s < n; ++s) {
    if (steps[s].send && !steps[s].send->input)
      for (int d = s - 1; d >= 0 && p.send_needs[s].step == Plan::none; --d)
        if (steps[d].receive && send_follows(steps[s].send->chunks, steps[d].receive->chunks))
          p.send_needs[s] = {d, steps[d].receive->chunks == steps[s].send->chunks};
    if (!steps[s].receive) continue;
    const ChunkRange into = steps[s].receive->chunks;
    for (int d = s; d >= 0 && p.receive_needs[s].step == Plan::none; --d) {
      const ChunkRange read = reads(p, schedule, in_place, d);
      if (overlap(read, into)) p.receive_needs[s] = {d, read == into};
    }
    for (int d = 0; d < n; ++d)
      if (overlap(reads(p, schedule, in_place, d), into)) p.reused_after[s] = d;
  }
  return p;
}

}  // namespace ringside::collectives
