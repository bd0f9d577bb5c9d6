#include "collectives/proof/lockstep.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/proof/disagreements.hpp"

namespace ringside::collectives {

namespace {

// A message between two ranks. It holds copies, since the sender may overwrite its chunks in the
// same step.
struct Message {
  std::vector<std::vector<double>> chunks;
  std::vector<std::uint64_t> sums;
  std::vector<bool> heard_from;
};

// The fingerprint of a rank's input, before anything is added to it.
std::uint64_t fingerprint_of_input(int rank) {
  return mix_bits(static_cast<std::uint64_t>(rank) + 1);
}

std::uint64_t fingerprint_of_sum(std::uint64_t a, std::uint64_t b) {
  return mix_bits(mix_bits(a) + mix_bits(b));
}

Message pack(int rank, const RankState& sender, const Send& send) {
  const auto& source = send.input ? sender.input : sender.chunks;
  const ChunkRange taken = send.taken();
  Message message{.chunks = {}, .sums = {}, .heard_from = sender.heard_from};
  for (int i = 0; i < taken.count; ++i) {
    message.chunks.push_back(source[taken.at(i)]);
    message.sums.push_back(send.input ? fingerprint_of_input(rank) : sender.sums[taken.at(i)]);
  }
  return message;
}

void deliver(const Message& message, const Receive& receive, RankState& receiver) {
  for (int i = 0; i < receive.chunks.count; ++i) {
    const std::vector<double>& incoming = message.chunks[i];
    std::vector<double>& held = receiver.chunks[receive.chunks.at(i)];
    std::uint64_t& sum = receiver.sums[receive.chunks.at(i)];
    if (receive.action == Action::overwrite) {
      held = incoming;
      sum = message.sums[i];
    } else {
      sum = fingerprint_of_sum(sum, message.sums[i]);
      for (size_t k = 0; k < held.size(); ++k) held[k] += incoming[k];
    }
  }
  for (size_t r = 0; r < receiver.heard_from.size(); ++r) {
    if (message.heard_from[r]) receiver.heard_from[r] = true;
  }
}

}  // namespace

std::vector<RankState> start_with_contributions(int size, int chunks, bool name_chunks) {
  std::vector<RankState> states;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<double> contribution(name_chunks ? size + chunks : size, 0.0);
    contribution[rank] = 1;
    RankState state{.chunks = {static_cast<size_t>(chunks), contribution},
                    .sums = std::vector<std::uint64_t>(chunks, fingerprint_of_input(rank)),
                    .heard_from = std::vector<bool>(size, false),
                    .input = {}};
    state.heard_from[rank] = true;
    for (int chunk = 0; name_chunks && chunk < chunks; ++chunk)
      state.chunks[chunk][size + chunk] = 1;
    state.input = state.chunks;
    states.push_back(state);
  }
  return states;
}

void run_step(const std::vector<Schedule>& schedules, int step, std::vector<RankState>& states) {
  const std::vector<std::string> wrong = disagreements(schedules, step);
  require(wrong.empty(), "{}", wrong.empty() ? "" : wrong.front());
  const int size = static_cast<int>(schedules.size());
  for (int rank = 0; rank < size; ++rank) {
    require(states.at(rank).chunks.size() == static_cast<size_t>(schedules[rank].chunks),
            "rank {}'s buffer is cut into {} chunks, but its schedule speaks of {}", rank,
            states[rank].chunks.size(), schedules[rank].chunks);
  }

  // A rank sends what it held before the step, so all messages are packed before any is delivered.
  std::vector<Message> messages(size);  // [rank] the message to this rank
  for (int rank = 0; rank < size; ++rank) {
    const std::optional<Send>& send = step_of(schedules, step, rank).send;
    if (send) messages[send->to] = pack(rank, states[rank], *send);
  }

  for (int rank = 0; rank < size; ++rank) {
    const std::optional<Receive>& receive = step_of(schedules, step, rank).receive;
    if (receive) deliver(messages[rank], *receive, states[rank]);
  }
}

void run_all_steps(const std::vector<Schedule>& schedules, std::vector<RankState>& states) {
  size_t steps = 0;
  for (const Schedule& schedule : schedules) steps = std::max(steps, schedule.steps.size());
  for (int step = 0; step < static_cast<int>(steps); ++step) run_step(schedules, step, states);
}

}  // namespace ringside::collectives
