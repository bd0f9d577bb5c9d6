// The blocks of a GPU kernel as CPU threads, for tests. Every block of every rank is a thread that
// runs the same functions as the kernels, with delays at random places that a seed determines.
#pragma once

#include <array>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/one_sided/staged.hpp"
#include "collectives/proof/pull.hpp"
#include "tests/collectives/one_sided/world.hpp"

namespace ringside::tests {

// A team of one thread, with random delays.
struct SlowThread {
  std::uint64_t seed = 0, who = 0;
  mutable Number moment = 0;
  int index() const { return 0; }
  int count() const { return 1; }
  void sync() const { delay(seed, who, moment++); }
  bool any(bool lost) const {
    sync();
    return lost;
  }
};

// Yields while it waits, because the tests have more blocks than cores.
template <class Side>
struct Yielding : Side {
  static void pause() { std::this_thread::yield(); }
};

struct BlockWorld {
  BlockWorld(int rank_count, int block_count, Number start = 0)
      : ranks(rank_count), blocks(block_count) {
    for (int r = 0; r < ranks; ++r) {
      mailboxes.push_back(std::make_unique<one_sided::Mailbox>());
      mailbox_of.push_back(mailboxes.back().get());
      hosts.push_back(std::make_unique<one_sided::HostWords>());
      for (int b = 0; b < blocks; ++b) {
        mailboxes.back()->counts[b] = start;
        for (auto& channel : mailboxes.back()->channels[b]) channel.published.value = start;
      }
    }
  }

  one_sided::BlockContext context(int rank, int block, Seconds patience = Seconds(60)) const {
    return {.rank = rank,
            .size = ranks,
            .block = block,
            .blocks = blocks,
            .patience = static_cast<std::uint64_t>(patience.count() * 1e9),
            .mailboxes = mailbox_of.data(),
            .host = hosts[static_cast<std::size_t>(rank)].get()};
  }

  // Calls body(thread, context, call) on each block of each rank, for each of `calls` calls. The
  // blocks of a rank begin a call together, as in a kernel; ranks do not wait for each other.
  void run(int calls, std::uint64_t seed,
           const std::function<void(const SlowThread&, const one_sided::BlockContext&, int)>& body)
      const {
    std::vector<std::unique_ptr<std::barrier<>>> launches;
    for (int r = 0; r < ranks; ++r) launches.push_back(std::make_unique<std::barrier<>>(blocks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      for (int b = 0; b < blocks; ++b)
        threads.emplace_back([&, r, b] {
          const SlowThread thread{.seed = seed, .who = static_cast<std::uint64_t>(r * blocks + b)};
          for (int call = 0; call < calls; ++call) {
            launches[static_cast<std::size_t>(r)]->arrive_and_wait();
            body(thread, context(r, b), call);
          }
        });
    for (auto& thread : threads) thread.join();
  }

  int ranks, blocks;
  std::vector<std::unique_ptr<one_sided::Mailbox>> mailboxes;
  std::vector<one_sided::Mailbox*> mailbox_of;
  std::vector<std::unique_ptr<one_sided::HostWords>> hosts;
};

// The packets of all ranks. A box has 8 MB, of which a test touches a few pages, so its zeros come
// from calloc.
struct Boxes {
  explicit Boxes(int ranks) {
    for (int r = 0; r < ranks; ++r) {
      boxes.emplace_back(std::calloc(1, sizeof(one_sided::PacketBox)), &std::free);
      of.push_back(static_cast<one_sided::PacketBox*>(boxes.back().get()));
    }
  }
  std::vector<std::unique_ptr<void, decltype(&std::free)>> boxes;
  std::vector<one_sided::PacketBox*> of;
};

// Arenas of all ranks with areas of `room` elements, so small that a call takes many tiles.
template <class T>
struct Areas {
  Areas(int ranks, std::size_t elements) : room(elements) {
    for (int r = 0; r < ranks; ++r)
      for (const bool first : {true, false}) {
        memory.push_back(
            std::make_unique<std::vector<one_sided::Pack<T>>>(room / one_sided::Pack<T>::size + 1));
        T* const at = memory.back()->data()->at;
        if (first)
          buffers.input[r] = at;
        else
          buffers.output[r] = at;
      }
  }
  std::size_t room;
  std::vector<std::unique_ptr<std::vector<one_sided::Pack<T>>>> memory;
  one_sided::Buffers<T> buffers;
};

// Buffers of all ranks, aligned to 16 bytes or not. The elements are small integers, so sums are
// exact in every type.
template <class T>
struct BlockData {
  BlockData(int ranks, std::size_t count, bool in_place, bool on_16_bytes, bool avg = false)
      : elements(count) {
    const std::size_t before = on_16_bytes ? 0 : 1;
    for (int r = 0; r < ranks; ++r) {
      auto& mine = memory.emplace_back();
      for (auto& buffer : mine)
        buffer = std::make_unique<Buffer>((count + before) * sizeof(T) / 16 + 2);
      const auto at = [&](int which) { return reinterpret_cast<T*>(mine[which]->data()) + before; };
      for (std::size_t i = 0; i < count; ++i) at(0)[i] = T(number(r, i));
      for (std::size_t i = 0; i < count; ++i) at(1)[i] = T(-1.0f);
      buffers.input[r] = at(0);
      buffers.output[r] = in_place ? at(0) : at(1);
    }
    scale = avg ? 1.0f / static_cast<float>(ranks) : 1.0f;
  }

  static float number(int rank, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 5) % 11) * 12.0f;
  }
  static float sum(int ranks, std::size_t i) {
    float total = 0;
    for (int r = 0; r < ranks; ++r) total += number(r, i);
    return total;
  }

  struct alignas(16) Line {
    std::byte bytes[16];
  };
  using Buffer = std::vector<Line>;
  std::size_t elements;
  std::vector<std::array<std::unique_ptr<Buffer>, 2>> memory;
  float scale = 1;
  one_sided::Buffers<T> buffers;
};

inline one_sided::PullSchedule ring_plan(int ranks, int rank) {
  std::vector<collectives::Schedule> schedules;
  for (int r = 0; r < ranks; ++r) schedules.push_back(collectives::ring_all_reduce(ranks, r));
  return collectives::pull_plan(schedules, rank);
}

}  // namespace ringside::tests
