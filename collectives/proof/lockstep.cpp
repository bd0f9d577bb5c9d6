#include "collectives/proof/lockstep.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "collectives/proof/disagreements.hpp"

namespace ringside::collectives {

namespace {

// A message between two ranks. It holds copies, since the sender may overwrite its chunks in the
// same step.
struct Message {
  std::vector<std::vector<double>> chunks;
  std::vector<std::string> sums;
  std::vector<bool> heard_from;
};

// What stands for a sum of more terms than there are ranks: it holds a rank twice, so it is wrong,
// and its order does not matter. Without a limit wrong schedules double it in each step.
const std::string too_many = "(a rank twice)";

// The first rank of "((0+1)+2)".
int first_rank(const std::string& sum) {
  return std::atoi(sum.c_str() + sum.find_first_not_of('('));
}

// The sum of both, the same text for a+b and b+a.
std::string sum_of(const std::string& a, const std::string& b, std::size_t ranks) {
  const auto in_a = std::ranges::count(a, '+'), in_b = std::ranges::count(b, '+');
  if (a == too_many || b == too_many || in_a + in_b + 2 > static_cast<std::ptrdiff_t>(ranks))
    return too_many;
  const int first_a = first_rank(a), first_b = first_rank(b);
  const bool in_order = in_a != in_b ? in_a > in_b : first_a != first_b ? first_a < first_b : a < b;
  return in_order ? "(" + a + "+" + b + ")" : "(" + b + "+" + a + ")";
}

Message pack(int rank, const RankState& sender, const Send& send) {
  const auto& source = send.input ? sender.input : sender.chunks;
  const ChunkRange taken = send.taken();
  Message message{.chunks = {}, .sums = {}, .heard_from = sender.heard_from};
  for (int i = 0; i < taken.count; ++i) {
    message.chunks.push_back(source[taken.at(i)]);
    message.sums.push_back(send.input ? std::to_string(rank) : sender.sums[taken.at(i)]);
  }
  return message;
}

void deliver(const Message& message, const Receive& receive, RankState& receiver) {
  for (int i = 0; i < receive.chunks.count; ++i) {
    const std::vector<double>& incoming = message.chunks[i];
    std::vector<double>& held = receiver.chunks[receive.chunks.at(i)];
    std::string& sum = receiver.sums[receive.chunks.at(i)];
    if (receive.action == Action::overwrite) {
      held = incoming;
      sum = message.sums[i];
    } else {
      sum = sum_of(sum, message.sums[i], receiver.heard_from.size());
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
                    .sums = std::vector<std::string>(chunks, std::to_string(rank)),
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
