#include "collectives/proof/disagreements.hpp"

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ringside::collectives {

namespace {

std::string in_words(const ChunkRange& range) {
  if (range.count == 0) return "a message without payload";
  if (range.count == 1) return fmt::format("chunk {}", range.first);
  if (range.modulus == 0 || range.count > range.modulus)
    return fmt::format("chunks {} to {}", range.first, range.first + range.count - 1);
  std::vector<int> chunks;
  for (int i = 0; i < range.count; ++i) chunks.push_back(range.at(i));
  return fmt::format("chunks {}", fmt::join(chunks, ", "));
}

bool lies_within(ChunkRange range, int chunks) {
  if (range.modulus != 0)
    return range.count >= 0 && range.count <= range.modulus && range.run > 0 &&
           range.modulus <= chunks && range.first >= 0 && range.first < range.modulus;
  return range.first >= 0 && range.count >= 0 && range.count <= chunks &&
         range.first <= chunks - range.count;
}

bool names_a_chunk_twice(ChunkRange range) {
  std::set<int> names;
  for (int i = 0; i < range.count; ++i) names.insert(range.at(i));
  return static_cast<int>(names.size()) != range.count;
}

// Checks one end of a message by itself: its peer and its chunks must exist. Returns what is wrong,
// or "". `act` and `preposition` are "sends" and "to", or "waits for" and "from".
std::string fault_of_end(int rank, const char* act, const char* preposition, int peer,
                         ChunkRange range, int size, int chunks) {
  std::string but;
  if (peer < 0 || peer >= size) but = fmt::format("the ranks are 0 to {}", size - 1);
  if (!lies_within(range, chunks))
    but = fmt::format("the chunks are 0 to {}", chunks - 1);
  else if (names_a_chunk_twice(range))
    but = "a message takes a chunk once";
  return but.empty() ? ""
                     : fmt::format("rank {} {} {} {} rank {}, but {}", rank, act, in_words(range),
                                   preposition, peer, but);
}

std::string fault_of_send(const std::vector<Schedule>& schedules, int step, int rank) {
  const std::optional<Send>& send = step_of(schedules, step, rank).send;
  if (!send) return "";
  const int size = static_cast<int>(schedules.size());
  const int chunks = schedules[rank].chunks;
  const std::string fault = fault_of_end(rank, "sends", "to", send->to, send->chunks, size, chunks);
  if (!fault.empty()) return fault;
  if (!lies_within(send->taken(), chunks))
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

}  // namespace

const Step& step_of(const std::vector<Schedule>& schedules, int step, int rank) {
  static const Step idle;
  const std::vector<Step>& steps = schedules[rank].steps;
  return step < static_cast<int>(steps.size()) ? steps[step] : idle;
}

std::string in_words(const Send& send) {
  const ChunkRange taken = send.taken();
  const std::string whose = send.input && taken.count > 0 ? " of its input" : "";
  return in_words(taken) + whose +
         (taken == send.chunks ? "" : fmt::format(" as {}", in_words(send.chunks)));
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

}  // namespace ringside::collectives
