// Runs of a one-sided protocol between threads that delay each other. Templates over PROTOCOL, the
// functions and types of a student's protocol.hpp and collectives.hpp, because their types are the
// student's own (exercises/28-one-sided/bind.cpp).
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"

namespace ringside::exercises {

// A memory that notes how its words are loaded and stored: "store_release of published".
struct RecordingMemory {
  static inline const std::uint32_t *published = nullptr, *released = nullptr;
  static inline std::vector<std::string> seen;
  static void note(const char* how, const std::uint32_t& word) {
    seen.push_back(std::string(how) + " of " +
                   (&word == published  ? "published"
                    : &word == released ? "released"
                                        : "another word"));
  }
  static std::uint32_t load_acquire(const std::uint32_t& word) {
    note("load_acquire", word);
    return word;
  }
  static std::uint32_t load_relaxed(const std::uint32_t& word) {
    note("load_relaxed", word);
    return word;
  }
  static void store_release(std::uint32_t& word, std::uint32_t value) {
    note("store_release", word);
    word = value;
  }
  static void store_relaxed(std::uint32_t& word, std::uint32_t value) {
    note("store_relaxed", word);
    word = value;
  }
  static void fence() { seen.emplace_back("a fence"); }
  static void pause() {}
};

// What slot_is_free, publish, has_arrived and free_slot do with memory, in this order.
template <class Protocol>
std::vector<std::vector<std::string>> orders_of() {
  typename Protocol::Channel channel;
  RecordingMemory::published = &channel.published.value;
  RecordingMemory::released = &channel.released.value;
  std::vector<std::vector<std::string>> all;
  const auto note = [&](auto step) {
    RecordingMemory::seen.clear();
    step();
    all.push_back(RecordingMemory::seen);
  };
  note([&] { (void)Protocol::template slot_is_free<RecordingMemory>(channel, 1, 4); });
  note([&] { Protocol::template publish<RecordingMemory>(channel, 1); });
  note([&] { (void)Protocol::template has_arrived<RecordingMemory>(channel, 1); });
  note([&] { Protocol::template free_slot<RecordingMemory>(channel, 1); });
  return all;
}

// Sometimes sleeps or yields, so that the other side can get ahead.
inline void delay(std::uint64_t seed, std::uint64_t who, std::uint64_t moment) {
  const auto roll = random_below(64, seed, 100 + who, moment);
  if (roll == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (roll < 8) std::this_thread::yield();
}

// Sends 1000 messages of 16 words over a channel of 4 slots, whose numbers begin after `start`.
// Returns how many words came out wrong.
template <class Protocol>
std::size_t wrong_words(std::uint64_t seed, std::uint32_t start) {
  constexpr std::uint32_t slots = 4, words = 16, messages = 1000;
  using Memory = typename Protocol::Memory;
  typename Protocol::Channel channel;
  channel.published.value = channel.released.value = start;
  std::vector<std::uint32_t> memory(slots * words);
  const auto slot = [&](std::uint32_t number) {
    return memory.data() + ((number - 1) & (slots - 1)) * words;
  };
  std::thread sender([&] {
    for (std::uint32_t i = 1; i <= messages; ++i) {
      const std::uint32_t number = start + i;
      while (!Protocol::template slot_is_free<Memory>(channel, number, slots))
        std::this_thread::yield();
      for (std::uint32_t w = 0; w < words; ++w) slot(number)[w] = i * words + w;
      delay(seed, 0, i);
      Protocol::template publish<Memory>(channel, number);
    }
  });
  std::size_t wrong = 0;
  for (std::uint32_t i = 1; i <= messages; ++i) {
    const std::uint32_t number = start + i;
    while (!Protocol::template has_arrived<Memory>(channel, number)) std::this_thread::yield();
    delay(seed, 1, i);
    for (std::uint32_t w = 0; w < words; ++w) wrong += slot(number)[w] != i * words + w;
    Protocol::template free_slot<Memory>(channel, number);
  }
  sender.join();
  return wrong;
}

// A block of one thread, with delays.
struct SlowTeam {
  std::uint64_t seed, who;
  mutable std::uint64_t moment = 0;
  int index() const { return 0; }
  int count() const { return 1; }
  void sync() const { delay(seed, who, moment++); }
  bool any(bool lost) const {
    sync();
    return lost;
  }
};

// 8 all-reduces on `ranks` ranks of `blocks` threads each. Before a call every rank writes new
// inputs; after it, it checks its output, and may write again. Returns how many sums came out
// wrong.
template <class Protocol>
std::size_t wrong_sums(int ranks, int blocks, std::uint64_t seed, std::uint32_t start) {
  const std::size_t count = 96 * static_cast<std::size_t>(ranks);
  const float scale = 0.5f;  // to see that it is used
  struct Rank {
    explicit Rank(int its_blocks) : launch(its_blocks) {}
    std::barrier<> launch;  // the blocks of a rank begin together
    alignas(16) float input[8 * 96] = {}, output[8 * 96] = {};
    typename Protocol::Mailbox mailbox;
    typename Protocol::HostWords host;
  };
  std::vector<std::unique_ptr<Rank>> world;
  std::vector<typename Protocol::Mailbox*> mailboxes;
  typename Protocol::Buffers buffers;
  for (int r = 0; r < ranks; ++r) {
    Rank& rank = *world.emplace_back(std::make_unique<Rank>(blocks));
    for (int b = 0; b < blocks; ++b) {
      rank.mailbox.counts[b] = start;
      for (auto& channel : rank.mailbox.channels[b]) channel.published.value = start;
    }
    mailboxes.push_back(&rank.mailbox);
    buffers.input[r] = rank.input, buffers.output[r] = rank.output;
  }

  std::atomic<std::size_t> wrong = 0;
  const auto run_block = [&](int r, int b) {
    Rank& rank = *world[static_cast<std::size_t>(r)];
    typename Protocol::BlockContext context;
    context.rank = r, context.size = ranks, context.block = b, context.blocks = blocks;
    context.patience = std::uint64_t(1) << 60;  // whoever waits for ever is ended by the judge
    context.mailboxes = mailboxes.data(), context.host = &rank.host;
    const SlowTeam team{seed, static_cast<std::uint64_t>(r * blocks + b)};
    for (int call = 0; call < 8; ++call) {
      const auto number = [&](int of, std::size_t i) {
        return static_cast<float>((i * 7 + static_cast<std::size_t>(of * 5 + call * 3)) % 11);
      };
      if (b == 0)
        for (std::size_t i = 0; i < count; ++i) rank.input[i] = number(r, i);
      rank.launch.arrive_and_wait();
      if (!Protocol::two_shot(team, context, buffers, count, scale)) ++wrong;
      rank.launch.arrive_and_wait();
      for (std::size_t i = 0; b == 0 && i < count; ++i) {
        float sum = 0;
        for (int of = 0; of < ranks; ++of) sum += number(of, i);
        wrong += rank.output[i] != scale * sum;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    for (int b = 0; b < blocks; ++b) threads.emplace_back(run_block, r, b);
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

}  // namespace ringside::exercises
