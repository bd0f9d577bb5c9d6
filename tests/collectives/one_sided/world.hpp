// A sender and a receiver that share a channel, for tests of the one-sided protocol. They use the
// steps of protocol.hpp with plain data in the slots, so that ThreadSanitizer checks the protocol
// itself.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "collectives/one_sided/protocol.hpp"

namespace ringside::tests {

namespace one_sided = collectives::one_sided;
using one_sided::Number;

// The slots have room for the longest message. `start` is the number before the first message; a
// value other than 0 lets the numbers wrap around.
struct OneChannel {
  OneChannel(Number slot_count, std::size_t slot_words, Number start)
      : slots(slot_count),
        words(slot_words),
        first(start + 1),
        memory(slot_count * slot_words),
        lengths(slot_count) {
    channel.published.value = channel.released.value = start;
  }
  std::uint32_t* slot(Number number) {
    return memory.data() + one_sided::slot_of(number, slots) * words;
  }

  one_sided::Channel channel;
  one_sided::Flag aborted;
  const Number slots;
  const std::size_t words;
  const Number first;
  std::vector<std::uint32_t> memory;  // plain words, protected by the protocol alone
  std::vector<std::size_t> lengths;   // [slot]
};

// The length of message i, and its word w. A reader that is too early or too late sees other
// values.
inline std::size_t length_of(std::uint64_t seed, Number i, std::size_t most) {
  return random_below(most + 1, seed, 1, i);
}
inline std::uint32_t word_of(std::uint64_t seed, Number i, std::size_t w) {
  return static_cast<std::uint32_t>(random_bits(seed, 2 + i, w));
}

// Sometimes sleeps or yields, as the seed determines, so that the other side can get ahead.
inline void delay(std::uint64_t seed, std::uint64_t side, Number i) {
  const auto roll = random_below(64, seed, 100 + side, i);
  if (roll == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (roll < 8) std::this_thread::yield();
}

// Spins for a bounded time and then yields, until ready() or until the abort flag is raised.
template <class Memory, class Ready>
void wait_for(OneChannel& world, Ready ready) {
  for (;;) {
    const auto waited = one_sided::spin<Memory>(ready, world.aborted, 100);
    if (waited == one_sided::Waited::ready) return;
    if (waited == one_sided::Waited::aborted)
      throw std::runtime_error("the other side has given up");
    std::this_thread::yield();
  }
}

template <class Memory>
void send_messages(OneChannel& world, Number count, std::uint64_t seed) {
  for (Number i = 0; i < count; ++i) {
    const Number number = world.first + i;
    wait_for<Memory>(
        world, [&] { return one_sided::slot_is_free<Memory>(world.channel, number, world.slots); });
    const std::size_t length = length_of(seed, i, world.words);
    world.lengths[one_sided::slot_of(number, world.slots)] = length;
    for (std::size_t w = 0; w < length; ++w) world.slot(number)[w] = word_of(seed, i, w);
    delay(seed, 0, i);
    one_sided::publish<Memory>(world.channel, number);
  }
}

// Returns how many words were wrong.
template <class Memory>
std::size_t receive_messages(OneChannel& world, Number count, std::uint64_t seed) {
  std::size_t wrong = 0;
  for (Number i = 0; i < count; ++i) {
    const Number number = world.first + i;
    wait_for<Memory>(world, [&] { return one_sided::has_arrived<Memory>(world.channel, number); });
    const std::size_t length = world.lengths[one_sided::slot_of(number, world.slots)];
    wrong += length != length_of(seed, i, world.words);
    for (std::size_t w = 0; w < length; ++w) wrong += world.slot(number)[w] != word_of(seed, i, w);
    delay(seed, 1, i);
    one_sided::free_slot<Memory>(world.channel, number);
  }
  return wrong;
}

// Ranks that announce a few words to all others, round after round, in two places each
// (transport/shm/announcement.hpp). Returns how many words were wrong.
template <class Memory>
std::size_t announce_rounds(int ranks, Number start, Number rounds, std::uint64_t seed) {
  constexpr std::size_t words = 5;
  struct Place {
    Number number;
    std::uint32_t data[words];  // plain words, protected by the protocol alone
  };
  std::vector<Place> places(static_cast<std::size_t>(2 * ranks), Place{start, {}});
  const auto place = [&](int rank, Number round) -> Place& {
    return places[static_cast<std::size_t>(2 * rank) + round % 2];
  };
  const auto word = [&](int rank, Number round, std::size_t w) {
    return word_of(seed, round, static_cast<std::size_t>(rank) * words + w);
  };
  std::vector<std::size_t> wrong(static_cast<std::size_t>(ranks), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      for (Number round = start + 1; round != start + 1 + rounds; ++round) {
        Place& mine = place(rank, round);
        for (std::size_t w = 0; w < words; ++w) mine.data[w] = word(rank, round, w);
        delay(seed, static_cast<std::uint64_t>(rank), round);
        one_sided::announce<Memory>(mine.number, round);
        for (int r = 0; r < ranks; ++r) {
          while (!one_sided::is_announced<Memory>(place(r, round).number, round))
            std::this_thread::yield();
          delay(seed, static_cast<std::uint64_t>(ranks + rank), round);
          for (std::size_t w = 0; w < words; ++w)
            wrong[static_cast<std::size_t>(rank)] += place(r, round).data[w] != word(r, round, w);
        }
      }
    });
  for (auto& thread : threads) thread.join();
  std::size_t all = 0;
  for (const std::size_t of_rank : wrong) all += of_rank;
  return all;
}

}  // namespace ringside::tests
