// The one-sided protocol: at compile time, between threads with random delays, and when the numbers
// wrap around.
#include "collectives/one_sided/protocol.hpp"

#include <atomic>
#include <memory>

#include <doctest/doctest.h>

#include "base/clock.hpp"
#include "tests/collectives/one_sided/world.hpp"

using namespace ringside;
using namespace ringside::tests;
using one_sided::HostMemory;

namespace {

// For a single thread, and for the compiler, which runs the steps in a static_assert.
struct PlainMemory {
  static constexpr Number load_acquire(const Number& word) { return word; }
  static constexpr void store_release(Number& word, Number value) { word = value; }
  static constexpr Number load_relaxed(const Number& word) { return word; }
  static constexpr void store_relaxed(Number& word, Number value) { word = value; }
  static constexpr void fence() {}
  static constexpr void pause() {}
};

// With two slots, two messages can be sent at once, and the third when the first has been read.
constexpr bool two_slots_take_two_messages(Number start) {
  one_sided::Channel channel{{start}, {start}};
  using M = PlainMemory;
  bool right = one_sided::slot_is_free<M>(channel, start + 1, 2) &&
               !one_sided::has_arrived<M>(channel, start + 1);
  one_sided::publish<M>(channel, start + 1);
  right = right && one_sided::has_arrived<M>(channel, start + 1) &&
          !one_sided::has_arrived<M>(channel, start + 2);
  right = right && one_sided::slot_is_free<M>(channel, start + 2, 2);
  one_sided::publish<M>(channel, start + 2);
  right = right && !one_sided::slot_is_free<M>(channel, start + 3, 2);
  one_sided::free_slot<M>(channel, start + 1);
  return right && one_sided::slot_is_free<M>(channel, start + 3, 2) &&
         !one_sided::slot_is_free<M>(channel, start + 4, 2);
}

constexpr bool a_sleeper_is_woken_once() {
  using M = PlainMemory;
  one_sided::Doorbell doorbell;
  bool right = !one_sided::must_wake<M>(doorbell);
  one_sided::about_to_sleep<M>(doorbell);
  right = right && one_sided::must_wake<M>(doorbell) && !one_sided::must_wake<M>(doorbell);
  one_sided::about_to_sleep<M>(doorbell);
  one_sided::woken<M>(doorbell);
  return right && !one_sided::must_wake<M>(doorbell);
}

constexpr one_sided::Waited spin_with(bool ready, Number abort_word) {
  return one_sided::spin<PlainMemory>([=] { return ready; }, one_sided::Flag{abort_word}, 10);
}

static_assert(two_slots_take_two_messages(0) && two_slots_take_two_messages(41));
static_assert(two_slots_take_two_messages(0xfffffffe) && two_slots_take_two_messages(0xffffffff));
static_assert(one_sided::reached(5, 5) && one_sided::reached(6, 5) && !one_sided::reached(4, 5));
static_assert(one_sided::reached(3, 0xfffffff0) && !one_sided::reached(0xfffffff0, 3));
static_assert(one_sided::slot_of(1, 4) == 0 && one_sided::slot_of(0, 4) == 3 &&
              one_sided::slot_of(0xffffffff, 4) == 2);
static_assert(a_sleeper_is_woken_once());
static_assert(spin_with(true, 0) == one_sided::Waited::ready &&
              spin_with(true, 1) == one_sided::Waited::ready);
static_assert(spin_with(false, 1) == one_sided::Waited::aborted &&
              spin_with(false, 0) == one_sided::Waited::out_of_budget);
static_assert(sizeof(one_sided::Channel) == 256 && alignof(one_sided::Flag) == 128,
              "every flag has cache lines of its own");

std::size_t wrong_words(Number slots, std::size_t words, Number start, Number messages,
                        std::uint64_t seed) {
  OneChannel world(slots, words, start);
  std::thread sender([&] { send_messages<HostMemory>(world, messages, seed); });
  const std::size_t wrong = receive_messages<HostMemory>(world, messages, seed);
  sender.join();
  return wrong;
}

}  // namespace

TEST_CASE("messages of any length arrive complete and in order, whichever side is slow") {
  std::uint64_t seed = 0;
  for (const Number slots : {1u, 2u, 8u})
    for (const std::size_t words :
         {std::size_t(0), std::size_t(1), std::size_t(7), std::size_t(257)}) {
      CAPTURE(slots);
      CAPTURE(words);
      CHECK(wrong_words(slots, words, 0, 2000, ++seed) == 0);
    }
}

TEST_CASE("messages arrive complete when the numbers wrap around") {
  for (const Number slots : {1u, 4u})
    CHECK(wrong_words(slots, 16, 0xffffffff - 500, 1000, slots) == 0);
}

TEST_CASE("announcements are complete in every round, also when the numbers wrap around") {
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    CHECK(announce_rounds<HostMemory>(ranks, 0, 2000, 1) == 0);
    CHECK(announce_rounds<HostMemory>(ranks, 0xffffffff - 500, 1000, 2) == 0);
  }
}

TEST_CASE("four ranks pass messages around a ring") {
  constexpr int size = 4;
  constexpr Number messages = 2000;
  std::vector<std::unique_ptr<OneChannel>> channels;  // [r] from r to r+1
  for (int r = 0; r < size; ++r) channels.push_back(std::make_unique<OneChannel>(2, 33, 0));
  std::atomic<std::size_t> wrong = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    const auto s = static_cast<std::size_t>(r);
    threads.emplace_back([&, s] { send_messages<HostMemory>(*channels[s], messages, s); });
    threads.emplace_back(
        [&, s] { wrong += receive_messages<HostMemory>(*channels[s], messages, s); });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a waiter ends when the abort word is raised") {
  OneChannel world(2, 1, 0);
  std::string told;
  std::thread receiver([&] {
    try {
      receive_messages<HostMemory>(world, 1, 1);
    } catch (const std::exception& error) {
      told = error.what();
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  HostMemory::store_release(world.aborted.value, 1);
  receiver.join();
  CHECK(told == "the other side has given up");
}

TEST_CASE("a sleeper never misses the doorbell") {
  // The sleep is a loop here that reads only the doorbell. If sleeper and waker missed each other,
  // it would last until the deadline.
  one_sided::Channel channel;
  one_sided::Doorbell doorbell;
  constexpr Number rounds = 20000;
  std::thread waker([&] {
    for (Number i = 1; i <= rounds; ++i) {
      while (!one_sided::slot_is_free<HostMemory>(channel, i, 1)) std::this_thread::yield();
      delay(3, 5, i);
      one_sided::publish<HostMemory>(channel, i);
      one_sided::must_wake<HostMemory>(doorbell);  // sets asleep to 0, which wakes the loop below
    }
  });
  int missed = 0;
  for (Number i = 1; i <= rounds; ++i) {
    while (!one_sided::has_arrived<HostMemory>(channel, i)) {
      one_sided::about_to_sleep<HostMemory>(doorbell);
      const Deadline deadline = Deadline::after(Seconds(2));
      const bool slept = !one_sided::has_arrived<HostMemory>(channel, i);
      while (slept && HostMemory::load_relaxed(doorbell.asleep.value) == 1 && !deadline.expired())
        std::this_thread::yield();
      missed += deadline.expired();
      one_sided::woken<HostMemory>(doorbell);
    }
    one_sided::free_slot<HostMemory>(channel, i);
  }
  waker.join();
  CHECK(missed == 0);
}
