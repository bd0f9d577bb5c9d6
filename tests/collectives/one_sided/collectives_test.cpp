// The functions of the GPU's kernels, run by CPU threads with random delays: correct results for
// every count, type and number of blocks, also when the numbers wrap around; and an end when a peer
// is lost.
#include "collectives/one_sided/collectives.hpp"
#include "collectives/half.hpp"

#include <atomic>

#include <doctest/doctest.h>

#include "collectives/algorithms/doubling/recursive_doubling.hpp"
#include "collectives/half.hpp"
#include "tests/collectives/one_sided/blocks.hpp"

using namespace ringside;
using namespace ringside::tests;
using collectives::Bf16;
using collectives::Fp16;
using one_sided::BlockContext;
using one_sided::Range;

namespace {

using Side = Yielding<one_sided::HostSide>;

// staged: the ranks see only each other's arenas.
enum class Kind { two_shot, one_shot, ring, staged_two_shot, staged_ring };

template <class T>
struct World {
  World(int ranks, int block_count, Number start = 0)
      : blocks(ranks, block_count, start),
        boxes(ranks),
        areas(ranks, static_cast<std::size_t>(ranks * block_count) * 2 * one_sided::Pack<T>::size) {
  }
  BlockWorld blocks;
  Boxes boxes;
  Areas<T> areas;
};

template <class T>
bool all_reduce(Kind kind, const SlowThread& thread, const BlockContext& context,
                const World<T>& world, const BlockData<T>& data, Number number = 1) {
  const auto& buffers = data.buffers;
  const T* const input = buffers.input[context.rank];
  T* const output = buffers.output[context.rank];
  if (kind == Kind::one_shot)
    return one_sided::one_shot_all_reduce<Side>(thread, context, input, output, data.elements,
                                                world.boxes.of.data(), number, data.scale);
  const auto in = [&](const one_sided::Buffers<T>& windows, Range range) {
    if (kind == Kind::two_shot || kind == Kind::staged_two_shot)
      return one_sided::two_shot_all_reduce<Side>(thread, context, windows, range, data.scale);
    return one_sided::pull_all_reduce<Side>(thread, context, windows, range,
                                            ring_plan(context.size, context.rank), data.scale);
  };
  if (kind == Kind::two_shot || kind == Kind::ring)
    return in(buffers, one_sided::stripe_of<T>(context, data.elements));
  const one_sided::Staging<T> staging{input, output, world.areas.room};
  return one_sided::staged_all_reduce<Side>(
      thread, context, staging, world.areas.buffers, data.elements,
      [&](Range range) { return in(world.areas.buffers, range); });
}

// How many elements of all ranks are wrong, plus how many blocks have lost a peer.
template <class T>
std::size_t wrong_of(Kind kind, int ranks, int blocks, std::size_t count, bool in_place, bool packs,
                     bool avg, Number start = 0) {
  const World<T> world(ranks, blocks, start);
  const BlockData<T> data(ranks, count, in_place, packs, avg);
  std::atomic<std::size_t> wrong = 0;
  world.blocks.run(1, count + static_cast<std::size_t>(blocks),
                   [&](const SlowThread& thread, const BlockContext& context, int) {
                     if (!all_reduce(kind, thread, context, world, data)) ++wrong;
                   });
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < count; ++i)
      wrong +=
          static_cast<float>(data.buffers.output[r][i]) != BlockData<T>::sum(ranks, i) * data.scale;
  return wrong;
}

template <class T>
void check_all_counts(Kind kind) {
  for (const int ranks : {2, 3, 4})
    for (const int blocks : {1, 3})
      for (const std::size_t count : {0, 1, 5, 16, 17, 255, 1024})
        for (const bool in_place : {false, true})
          for (const bool packs : {false, true}) {
            CAPTURE(ranks);
            CAPTURE(blocks);
            CAPTURE(count);
            CAPTURE(in_place);
            CAPTURE(packs);
            CHECK(wrong_of<T>(kind, ranks, blocks, count, in_place, packs,
                              ranks != 3 && count == 17) == 0);
          }
}

// Notes the addresses that a thread loads, in order.
struct Recording : Side {
  static inline thread_local std::vector<const void*> loads;
  template <class Width, class T>
  static Width load(const T* from, const Width& width) {
    loads.push_back(from);
    return Side::load(from, width);
  }
};

}  // namespace

TEST_CASE("blocks: two-shot sums exactly") {
  check_all_counts<float>(Kind::two_shot);
  check_all_counts<Bf16>(Kind::two_shot);
  check_all_counts<Fp16>(Kind::two_shot);
}

TEST_CASE("blocks: one-shot sums exactly") {
  check_all_counts<float>(Kind::one_shot);
  check_all_counts<Bf16>(Kind::one_shot);
}

TEST_CASE("blocks: the ring, from its schedule, sums exactly") {
  check_all_counts<float>(Kind::ring);
  check_all_counts<Fp16>(Kind::ring);
}

TEST_CASE("blocks: ranks that see only each other's arenas sum exactly, tile by tile") {
  check_all_counts<float>(Kind::staged_two_shot);
  check_all_counts<Bf16>(Kind::staged_two_shot);
  check_all_counts<float>(Kind::staged_ring);
}

TEST_CASE("blocks: sums are exact when the numbers wrap around") {
  for (const Kind kind : {Kind::two_shot, Kind::ring, Kind::staged_two_shot, Kind::staged_ring})
    for (Number start = 0xffffffff - 8; start != 2; ++start)
      CHECK(wrong_of<float>(kind, 3, 2, 100, false, true, false, start) == 0);
}

TEST_CASE(
    "blocks: calls of all kinds follow each other without waiting, and two halves of a box are "
    "enough") {
  constexpr int ranks = 3, blocks = 2, calls = 100;
  const World<float> world(ranks, blocks, 0xffffffff - 100);
  constexpr Kind kinds[] = {Kind::two_shot, Kind::one_shot,        Kind::one_shot,
                            Kind::ring,     Kind::staged_two_shot, Kind::one_shot,
                            Kind::one_shot, Kind::one_shot,        Kind::staged_ring};
  std::vector<BlockData<float>> data;  // [call], so that only boxes and areas are used again
  for (int call = 0; call < calls; ++call)
    data.emplace_back(ranks, 20 + static_cast<std::size_t>(call * 13 % 57), false, true);
  // Other numbers in each call, so that what an earlier call has left is wrong.
  for (int call = 0; call < calls; ++call)
    for (int r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < data[static_cast<std::size_t>(call)].elements; ++i)
        const_cast<float&>(data[static_cast<std::size_t>(call)].buffers.input[r][i]) +=
            static_cast<float>(call);
  std::atomic<int> lost = 0;
  world.blocks.run(calls, 5, [&](const SlowThread& thread, const BlockContext& context, int call) {
    lost += !all_reduce(kinds[call % 9], thread, context, world,
                        data[static_cast<std::size_t>(call)], static_cast<Number>(call + 1));
  });
  CHECK(lost == 0);
  int wrong = 0;
  for (int call = 0; call < calls; ++call) {
    const auto& of_call = data[static_cast<std::size_t>(call)];
    for (int r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < of_call.elements; ++i)
        wrong += of_call.buffers.output[r][i] !=
                 BlockData<float>::sum(ranks, i) + static_cast<float>(ranks * call);
  }
  CHECK(wrong == 0);
}

TEST_CASE("blocks: reduce_scatter, all_gather and broadcast give the right elements") {
  for (const int ranks : {1, 2, 4})
    for (const std::size_t count : {0, 3, 64, 203})
      for (const bool staged : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(count);
        CAPTURE(staged);
        const World<float> world(ranks, 2);
        const auto& areas = world.areas.buffers;
        const BlockData<float> scattered(ranks, count, false, false),
            sent(ranks, count, true, true);
        BlockData<float> gathered(ranks, count, false, false);
        for (int r = 0; r < ranks; ++r)
          gathered.buffers.input[r] += one_sided::even_chunk(count, r, ranks).begin;
        std::atomic<int> lost = 0;
        const auto staging = [&](const BlockData<float>& data, const BlockContext& context) {
          return one_sided::Staging<float>{data.buffers.input[context.rank],
                                           data.buffers.output[context.rank], world.areas.room};
        };
        world.blocks.run(1, count, [&](const SlowThread& thread, const BlockContext& at, int) {
          using namespace one_sided;
          if (staged) {
            lost += !staged_reduce_scatter<Side>(thread, at, staging(scattered, at), areas, count,
                                                 1.0f);
            lost += !staged_all_gather<Side>(thread, at, staging(gathered, at), areas, count);
            lost += !staged_broadcast<Side>(thread, at, staging(sent, at), areas, count, ranks - 1);
          } else {
            lost += !direct_reduce_scatter<Side>(thread, at, scattered.buffers, count, 1.0f);
            lost += !direct_all_gather<Side>(thread, at, gathered.buffers, count);
            lost += !direct_broadcast<Side>(thread, at, sent.buffers, count, ranks - 1);
          }
        });
        CHECK(lost == 0);
        int wrong = 0;
        for (int r = 0; r < ranks; ++r)
          for (int owner = 0; owner < ranks; ++owner) {
            const Range chunk = one_sided::even_chunk(count, owner, ranks);
            for (std::size_t i = chunk.begin; i < chunk.end; ++i) {
              if (owner == r)
                wrong +=
                    scattered.buffers.output[r][i - chunk.begin] != BlockData<float>::sum(ranks, i);
              wrong += gathered.buffers.output[r][i] != BlockData<float>::number(owner, i);
              wrong += sent.buffers.output[r][i] != BlockData<float>::number(ranks - 1, i);
            }
          }
        CHECK(wrong == 0);
      }
}

// So in each step every rank is read by one other.
TEST_CASE("blocks: a rank reads from its next neighbour first and from itself last") {
  constexpr int ranks = 4;
  constexpr std::size_t count = 256;
  for (const bool sums : {true, false}) {
    const BlockWorld world(ranks, 1);
    const BlockData<float> data(ranks, count, false, true);
    std::atomic<int> right = 0;
    world.run(1, 1, [&](const SlowThread& thread, const BlockContext& context, int) {
      Recording::loads.clear();
      if (sums)
        one_sided::two_shot_all_reduce<Recording>(thread, context, data.buffers, {0, count}, 1.0f);
      else
        one_sided::direct_all_gather<Recording>(thread, context, data.buffers, count);
      std::vector<int> order;  // of the ranks
      for (const void* address : Recording::loads)
        for (int r = 0; r < ranks; ++r) {
          const float* const input = data.buffers.input[r];
          if (address >= input && address < input + count && (order.empty() || order.back() != r))
            order.push_back(r);
        }
      for (std::size_t s = 0; s < order.size(); ++s)
        right += order[s] == (context.rank + 1 + static_cast<int>(s)) % ranks;
    });
    // Two-shot reads a pack of each rank in turn; all_gather reads a rank's whole chunk.
    CHECK(right == ranks * (sums ? static_cast<int>(count / 4) : ranks));
  }
}

TEST_CASE("blocks: a rank that never arrives is named and no other rank spins on") {
  for (const Kind kind : {Kind::two_shot, Kind::one_shot}) {
    const World<float> world(3, 2);
    const BlockData<float> data(3, 100, false, true);
    std::atomic<int> lost = 0;
    std::vector<std::thread> threads;
    for (const int rank : {0, 2})
      for (const int block : {0, 1})
        threads.emplace_back([&, rank, block] {
          // Rank 0 has little patience; rank 2 has much and ends only when rank 0 tells it.
          const auto context =
              world.blocks.context(rank, block, rank == 0 ? Seconds(0.05) : Seconds(1000));
          lost += !all_reduce(kind, SlowThread{}, context, world, data);
        });
    for (auto& thread : threads) thread.join();
    CHECK(lost == 4);
    CHECK(world.blocks.hosts[0]->stall.waiting_for == 1 + 1);
    CHECK(world.blocks.hosts[0]->stall.number == 1);
    CHECK(world.blocks.hosts[2]->stall.waiting_for == 0);
    CHECK(world.blocks.hosts[2]->gave_up.value == 1);
    CHECK(world.blocks.mailboxes[1]->aborted.value == 1);
  }
}

TEST_CASE("blocks: when one host says stop, the blocks of all ranks end") {
  const World<float> world(3, 1);
  const BlockData<float> data(3, 100, false, true);
  std::atomic<int> lost = 0;
  std::vector<std::thread> threads;
  for (const int rank : {0, 2})
    threads.emplace_back([&, rank] {
      const auto context = world.blocks.context(rank, 0, Seconds(1000));
      lost += !all_reduce(Kind::one_shot, SlowThread{}, context, world, data);
    });
  one_sided::HostMemory::store_release(world.blocks.hosts[2]->stop.value, 1);
  for (auto& thread : threads) thread.join();
  CHECK(lost == 2);
  for (const int rank : {0, 2}) {
    const auto& host = *world.blocks.hosts[static_cast<std::size_t>(rank)];
    CHECK(host.gave_up.value == 1);
    CHECK(host.stall.waiting_for == 0);
  }
}

TEST_CASE("stripes cover every element once and are cut at multiples of a pack") {
  for (const std::size_t begin : {0, 1, 4, 7})
    for (const std::size_t count : {0, 1, 3, 8, 9, 100})
      for (const int parts : {1, 2, 7}) {
        std::size_t next = begin;
        for (int part = 0; part < parts; ++part) {
          const Range range = one_sided::stripe<float>({begin, begin + count}, part, parts);
          if (range.begin == range.end) continue;
          CHECK(range.begin == next);
          CHECK((range.begin == begin || range.begin % 4 == 0));
          next = range.end;
        }
        CHECK(next == begin + count);
      }
}

TEST_CASE("a schedule is pulled only if no rank overwrites what another has yet to read") {
  for (int ranks = 1; ranks <= one_sided::most_ranks; ++ranks)
    for (int rank = 0; rank < ranks; ++rank) CHECK(ring_plan(ranks, rank).steps == 2 * (ranks - 1));
  const std::vector<collectives::Schedule> exchange{
      collectives::recursive_doubling_all_reduce(2, 0),
      collectives::recursive_doubling_all_reduce(2, 1)};
  CHECK_THROWS_WITH(collectives::pull_plan(exchange, 0),
                    "this schedule cannot be pulled: rank 1 writes chunk 0 in step 0, and cannot "
                    "know whether rank 0, which reads it in step 0, has");
  CHECK_THROWS_WITH(ring_plan(9, 0), "a plan to pull is for 1 to 8 ranks, not 9");
}
