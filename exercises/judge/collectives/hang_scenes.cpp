#include "exercises/judge/collectives/hang_scenes.hpp"

#include <cstring>

#include <fmt/format.h>

#include "base/random.hpp"
#include "collectives/call.hpp"

namespace ringside::exercises {

using namespace collectives;

namespace {

// Call number `n` of all ranks; `shift` for a rank that has left one out.
Call call_number(std::uint64_t n, std::uint64_t shift = 0) {
  const std::uint64_t k = n + shift;
  return {.collective = k % 3 == 0 ? Collective::broadcast : Collective::all_reduce,
          .count = 100 + k % 5,
          .label = Label(fmt::format("layer{}", k))};
}

Call message(int from, int to, const char* label) {
  return {.collective = Collective::point_to_point,
          .root = from,
          .count = 16,
          .peer = to,
          .label = Label(label)};
}

// The records of one group while it is made: every rank runs the same calls, and after each of them
// a send or recv, which has a number of its own.
struct Clinic {
  Clinic(std::uint64_t its_seed, std::uint64_t its_scene) : seed(its_seed), scene(its_scene) {
    for (int rank = 0; rank < size; ++rank) {
      Flight& flight = flights.emplace_back();
      flight.header.rank = rank;
      flight.header.size = size;
      flight.header.written_ns = std::int64_t{1'000'000'000} * (100 + random(0, 9, 50 + rank));
      std::strcpy(flight.header.cause, "no message came for 5 s");
      // Recorders keep the last calls only, and not the same ones.
      for (int n = random(1, 3, 20 + rank); n <= last; ++n) make(rank, n);
    }
  }
  int random(int low, int high, int which) const {
    const auto range = static_cast<std::uint64_t>(high - low + 1);
    return low +
           static_cast<int>(random_below(range, seed, scene, static_cast<std::uint64_t>(which)));
  }
  FlightEntry& add(int rank, const Call& call, std::uint64_t sequence) {
    std::vector<FlightEntry>& entries = flights[static_cast<std::size_t>(rank)].entries;
    return entries.emplace_back(FlightEntry{.sequence = sequence,
                                            .call = call,
                                            .state = FlightEntry::done,
                                            .began_ns = static_cast<std::int64_t>(entries.size())});
  }
  void make(int rank, int n, std::uint64_t shift = 0) {
    const auto number = static_cast<std::uint64_t>(n);
    add(rank, call_number(number, shift), number);
    const int from = (rank + 1) % size;
    add(rank, message(from, rank, "activation"), number / 2 + 1).waiting_for = from;  // it came
  }
  // The rank waits in this call.
  void wait(int rank, const Call& call, std::uint64_t sequence, int for_rank) {
    FlightEntry& entry = add(rank, call, sequence);
    entry.state = rank % 2 == 0 ? FlightEntry::failed : FlightEntry::under_way;
    entry.waiting_for = for_rank;
  }
  std::uint64_t seed, scene;
  int size = 5 + static_cast<int>(scene % 3), last = random(6, 20, 1),
      culprit = random(0, size - 2, 2);
  std::vector<Flight> flights;
};

HangScene diverged(Clinic clinic) {  // the culprit leaves out a call
  Flight& flight = clinic.flights[static_cast<std::size_t>(clinic.culprit)];
  flight.entries.clear();
  for (int n = 3; n <= clinic.last; ++n) clinic.make(clinic.culprit, n, n > 4 ? 1 : 0);
  return {fmt::format("rank {} leaves out call #5", clinic.culprit), clinic.flights};
}

HangScene late(Clinic clinic) {  // two ranks do not come to the last call
  const int other = clinic.culprit + 1;
  const auto next = static_cast<std::uint64_t>(clinic.last + 1);
  for (int rank = 0; rank < clinic.size; ++rank)
    if (rank != clinic.culprit && rank != other)
      clinic.wait(rank, call_number(next), next, clinic.culprit);
  return {fmt::format("ranks {} and {} do not come to call #{}", clinic.culprit, other, next),
          clinic.flights};
}

HangScene killed(Clinic clinic) {
  const auto next = static_cast<std::uint64_t>(clinic.last + 1);
  for (int rank = 0; rank < clinic.size; ++rank)
    clinic.wait(rank, call_number(next), next, clinic.culprit);
  clinic.flights.erase(clinic.flights.begin() + clinic.culprit);
  return {fmt::format("rank {} is killed", clinic.culprit), clinic.flights};
}

HangScene in_a_circle(Clinic clinic) {  // two or three ranks, and one that waits for them
  const int length = 2 + static_cast<int>(clinic.scene % 2), c = clinic.culprit;
  const auto rank_at = [&](int i) { return (c + i) % clinic.size; };
  const auto receive = [&](int rank, int from) {
    clinic.wait(rank, message(from, rank, "gradient"), 99, from);
  };
  for (int i = 0; i < length; ++i) receive(rank_at(i), rank_at((i + 1) % length));
  receive(rank_at(length), c);
  return {fmt::format("{} ranks from rank {} on wait in a circle", length, c), clinic.flights};
}

}  // namespace

std::vector<HangScene> hang_scenes(std::uint64_t seed) {
  std::vector<HangScene> all;
  for (std::uint64_t k = 0; k < 12; k += 4) {
    all.push_back(diverged({seed, k}));
    all.push_back(late({seed, k + 1}));
    all.push_back(killed({seed, k + 2}));
    all.push_back(in_a_circle({seed, k + 3}));
  }
  return all;
}

}  // namespace ringside::exercises
