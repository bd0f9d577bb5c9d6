#include "collectives/exchange/pack_messages.hpp"

#include <algorithm>

namespace ringside::collectives {

std::vector<Schedule> pack_messages(int size, int chunks, const std::vector<Message>& messages) {
  const std::vector<int> never(static_cast<std::size_t>(chunks), -1);
  // [rank][chunk] the last step that sends it, and the last that receives into it.
  std::vector<std::vector<int>> sent(static_cast<std::size_t>(size), never), received = sent;
  std::vector<Schedule> schedules(static_cast<std::size_t>(size), Schedule{chunks, {}});
  std::size_t steps = 0;
  for (const Message& message : messages) {
    int step = 0;
    for (int c = message.chunks.first; c < message.chunks.first + message.chunks.count; ++c) {
      if (!message.input) step = std::max(step, received[message.from][c] + 1);
      // A rank sends what it held before the step: it may receive in the step that sends.
      step = std::max({step, received[message.to][c] + 1, sent[message.to][c]});
    }
    auto& sender = schedules[message.from].steps;
    auto& receiver = schedules[message.to].steps;
    const auto is_taken = [&](std::size_t s) {
      return (s < sender.size() && sender[s].send) || (s < receiver.size() && receiver[s].receive);
    };
    while (is_taken(static_cast<std::size_t>(step))) ++step;
    steps = std::max(steps, static_cast<std::size_t>(step) + 1);
    sender.resize(std::max(sender.size(), static_cast<std::size_t>(step) + 1));
    receiver.resize(std::max(receiver.size(), static_cast<std::size_t>(step) + 1));
    sender[step].send = Send{message.to, message.chunks, message.input, {}};
    receiver[step].receive = Receive{message.from, message.chunks, message.action};
    for (int c = message.chunks.first; c < message.chunks.first + message.chunks.count; ++c) {
      if (!message.input) sent[message.from][c] = std::max(sent[message.from][c], step);
      received[message.to][c] = step;
    }
  }
  for (Schedule& schedule : schedules) schedule.steps.resize(steps);
  return schedules;
}

}  // namespace ringside::collectives
