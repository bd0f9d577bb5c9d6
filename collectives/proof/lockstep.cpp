#include "collectives/proof/lockstep.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/algorithms/chunks.hpp"

namespace ringside::collectives {

namespace {

std::string in_words(const ChunkRange& range) {
  if (range.count == 0) return "a message without payload";
  if (range.count == 1) return fmt::format("chunk {}", range.first);
  return fmt::format("chunks {} to {}", range.first, range.first + range.count - 1);
}

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
  const int first = send.input.value_or(send.chunks.first), end = first + send.chunks.count;
  const auto& source = send.input ? sender.input : sender.chunks;
  Message message{.chunks = {source.begin() + first, source.begin() + end},
                  .sums = {},
                  .heard_from = sender.heard_from};
  for (int chunk = first; chunk < end; ++chunk)
    message.sums.push_back(send.input ? fingerprint_of_input(rank) : sender.sums[chunk]);
  return message;
}

void deliver(const Message& message, const Receive& receive, RankState& receiver) {
  for (int i = 0; i < receive.chunks.count; ++i) {
    const std::vector<double>& incoming = message.chunks[i];
    std::vector<double>& held = receiver.chunks[receive.chunks.first + i];
    std::uint64_t& sum = receiver.sums[receive.chunks.first + i];
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

bool lies_within(ChunkRange range, int chunks) {
  return range.first >= 0 && range.count >= 0 && range.count <= chunks &&
         range.first <= chunks - range.count;
}

// Checks one end of a message by itself: its peer and its chunks must exist. Returns what is wrong,
// or
// "". `act` and `preposition` are "sends" and "to", or "waits for" and "from".
std::string fault_of_end(int rank, const char* act, const char* preposition, int peer,
                         ChunkRange range, int size, int chunks) {
  std::string but;
  if (peer < 0 || peer >= size) but = fmt::format("the ranks are 0 to {}", size - 1);
  if (!lies_within(range, chunks)) but = fmt::format("the chunks are 0 to {}", chunks - 1);
  return but.empty() ? ""
                     : fmt::format("rank {} {} {} {} rank {}, but {}", rank, act, in_words(range),
                                   preposition, peer, but);
}

// What rank `rank` does in step `step`: nothing after the end of its schedule.
const Step& step_of(const std::vector<Schedule>& schedules, int step, int rank) {
  static const Step idle;
  const std::vector<Step>& steps = schedules[rank].steps;
  return step < static_cast<int>(steps.size()) ? steps[step] : idle;
}

std::string fault_of_send(const std::vector<Schedule>& schedules, int step, int rank) {
  const std::optional<Send>& send = step_of(schedules, step, rank).send;
  if (!send) return "";
  const int size = static_cast<int>(schedules.size());
  const int chunks = schedules[rank].chunks;
  const std::string fault = fault_of_end(rank, "sends", "to", send->to, send->chunks, size, chunks);
  if (!fault.empty()) return fault;
  if (send->input && !lies_within({*send->input, send->chunks.count}, chunks))
    return fmt::format("rank {} sends {} to rank {}, but the chunks are 0 to {}", rank,
                       in_words(*send), send->to, chunks - 1);

  const std::optional<Receive>& expected = step_of(schedules, step, send->to).receive;
  if (expected && expected->from == rank && expected->chunks == send->chunks) return "";
  return fmt::format(
      "rank {} sends {} to rank {}, but rank {} expects {}", rank, in_words(*send), send->to,
      send->to,
      expected ? fmt::format("{} from rank {}", in_words(expected->chunks), expected->from)
               : "nothing");
}

std::string fault_of_receive(const std::vector<Schedule>& schedules, int step, int rank) {
  const std::optional<Receive>& receive = step_of(schedules, step, rank).receive;
  if (!receive) return "";
  const int size = static_cast<int>(schedules.size());
  const std::string fault = fault_of_end(rank, "waits for", "from", receive->from, receive->chunks,
                                         size, schedules[rank].chunks);
  if (!fault.empty()) return fault;

  const std::optional<Send>& sent = step_of(schedules, step, receive->from).send;
  // If the chunks differ, fault_of_send() has reported it.
  if (sent && sent->to == rank) return "";
  return fmt::format("rank {} waits for {} from rank {}, but rank {} sends {}", rank,
                     in_words(receive->chunks), receive->from, receive->from,
                     sent ? fmt::format("{} to rank {}", in_words(*sent), sent->to) : "nothing");
}

std::vector<bool> only_itself(int rank, int size) {
  std::vector<bool> heard_from(size, false);
  heard_from[rank] = true;
  return heard_from;
}

}  // namespace

std::string in_words(const Send& send) {
  if (!send.input || send.chunks.count == 0) return in_words(send.chunks);
  const std::string taken = in_words(ChunkRange{*send.input, send.chunks.count}) + " of its input";
  return *send.input == send.chunks.first ? taken
                                          : fmt::format("{} as {}", taken, in_words(send.chunks));
}

std::vector<RankState> start_with_numbers(const std::vector<std::vector<double>>& buffers,
                                          int chunks) {
  require(chunks >= 1, "a buffer is cut into at least 1 chunk, not into {}", chunks);
  if (buffers.empty()) return {};
  const Chunks cut = Chunks::even(buffers[0].size(), chunks);
  const int size = static_cast<int>(buffers.size());
  std::vector<RankState> states;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<double>& buffer = buffers[rank];
    require(
        buffer.size() == buffers[0].size(),
        "all ranks need buffers of the same length, but rank 0 has {} numbers and rank {} has {}",
        buffers[0].size(), rank, buffer.size());
    RankState state{.chunks = {},
                    .sums = std::vector<std::uint64_t>(chunks, fingerprint_of_input(rank)),
                    .heard_from = only_itself(rank, size),
                    .input = {}};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      state.chunks.emplace_back(buffer.begin() + cut.begin(chunk),
                                buffer.begin() + cut.begin(chunk + 1));
    }
    state.input = state.chunks;
    states.push_back(state);
  }
  return states;
}

std::vector<RankState> start_with_contributions(int size, int chunks, bool name_chunks) {
  std::vector<RankState> states;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<double> contribution(name_chunks ? size + chunks : size, 0.0);
    contribution[rank] = 1;
    RankState state{.chunks = {static_cast<size_t>(chunks), contribution},
                    .sums = std::vector<std::uint64_t>(chunks, fingerprint_of_input(rank)),
                    .heard_from = only_itself(rank, size),
                    .input = {}};
    for (int chunk = 0; name_chunks && chunk < chunks; ++chunk)
      state.chunks[chunk][size + chunk] = 1;
    state.input = state.chunks;
    states.push_back(state);
  }
  return states;
}

std::vector<std::string> disagreements(const std::vector<Schedule>& schedules, int step) {
  std::vector<std::string> found;
  for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
    for (const std::string& fault :
         {fault_of_send(schedules, step, rank), fault_of_receive(schedules, step, rank)}) {
      if (!fault.empty()) found.push_back(fmt::format("step {}: {}", step, fault));
    }
  }
  return found;
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
