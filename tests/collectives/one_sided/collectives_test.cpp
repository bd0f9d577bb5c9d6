// The functions of the GPU's kernels, run by CPU threads with random delays: correct results for
// every count, type and number of blocks, also when the numbers wrap around; and an end when a peer
// is lost.
#include "collectives/one_sided/collectives.hpp"
#include "collectives/half.hpp"

#include <atomic>

#include <doctest/doctest.h>

#include "collectives/algorithms/recursive_doubling.hpp"
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

enum class Kind { two_shot, one_shot, ring };

template <class T>
bool all_reduce(Kind kind, const SlowThread& thread, const BlockContext& context,
                const BlockData<T>& data) {
  if (kind == Kind::two_shot)
    return one_sided::two_shot_all_reduce<Side>(thread, context, data.buffers);
  if (kind == Kind::one_shot)
    return one_sided::one_shot_all_reduce<Side>(thread, context, data.buffers, data.elements);
  return one_sided::pull_all_reduce<Side>(thread, context, data.buffers,
                                          ring_plan(context.size, context.rank));
}

// How many elements of all ranks are wrong, plus how many blocks have lost a peer.
template <class T>
std::size_t wrong_of(Kind kind, int ranks, int blocks, std::size_t count, bool in_place, bool packs,
                     bool avg, Number start = 0) {
  const BlockWorld world(ranks, blocks, start);
  const BlockData<T> data(ranks, count, in_place, packs, avg);
  std::atomic<std::size_t> wrong = 0;
  world.run(1, count + static_cast<std::size_t>(blocks),
            [&](const SlowThread& thread, const BlockContext& context, int) {
              if (!all_reduce(kind, thread, context, data)) ++wrong;
            });
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < count; ++i)
      wrong += static_cast<float>(data.buffers.output[r][i]) !=
               BlockData<T>::sum(ranks, i) * data.buffers.scale;
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

TEST_CASE("blocks: sums are exact when the numbers wrap around") {
  for (const Kind kind : {Kind::two_shot, Kind::one_shot, Kind::ring})
    for (Number start = 0xffffffff - 8; start != 2; ++start)
      CHECK(wrong_of<float>(kind, 3, 2, 100, false, true, false, start) == 0);
}

TEST_CASE(
    "blocks: calls of all kinds follow each other without waiting, and two packets are enough") {
  constexpr int ranks = 3, blocks = 2, calls = 60;
  const BlockWorld world(ranks, blocks, 0xffffffff - 100);
  const BlockData<float> packets(ranks, 80, false, true);
  std::vector<BlockData<float>> data;  // [call], so that only the packets are used again
  for (int call = 0; call < calls; ++call)
    data.emplace_back(ranks, 20 + static_cast<std::size_t>(call * 13 % 57), false, true);
  std::atomic<int> lost = 0;
  world.run(calls, 5, [&](const SlowThread& thread, const BlockContext& context, int call) {
    auto& of_call = data[static_cast<std::size_t>(call)];
    if (call % 3 != 0) {
      auto buffers = of_call.buffers;
      for (int r = 0; r < ranks; ++r)
        buffers.packet[r] = packets.packets[call & 1][static_cast<std::size_t>(r)];
      lost += !one_sided::one_shot_all_reduce<Side>(thread, context, buffers, of_call.elements);
    } else {
      lost += !all_reduce(call % 2 ? Kind::two_shot : Kind::ring, thread, context, of_call);
    }
  });
  CHECK(lost == 0);
  int wrong = 0;
  for (const auto& of_call : data)
    for (int r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < of_call.elements; ++i)
        wrong += of_call.buffers.output[r][i] != BlockData<float>::sum(ranks, i);
  CHECK(wrong == 0);
}

TEST_CASE("blocks: reduce_scatter, all_gather and broadcast give the right elements") {
  for (const int ranks : {1, 2, 4})
    for (const std::size_t count : {0, 3, 64, 203}) {
      CAPTURE(ranks);
      CAPTURE(count);
      const BlockWorld world(ranks, 2);
      BlockData<float> scattered(ranks, count, false, false), sent(ranks, count, true, true);
      BlockData<float> gathered(ranks, count, false, false);
      for (int r = 0; r < ranks; ++r) gathered.buffers.input[r] += gathered.buffers.chunks[r].begin;
      std::atomic<int> lost = 0;
      world.run(1, count, [&](const SlowThread& thread, const BlockContext& context, int) {
        lost += !one_sided::direct_reduce_scatter<Side>(thread, context, scattered.buffers);
        lost += !one_sided::direct_all_gather<Side>(thread, context, gathered.buffers);
        lost += !one_sided::direct_broadcast<Side>(thread, context, sent.buffers, count, ranks - 1);
      });
      CHECK(lost == 0);
      int wrong = 0;
      for (int r = 0; r < ranks; ++r)
        for (int owner = 0; owner < ranks; ++owner) {
          const Range chunk = gathered.buffers.chunks[owner];
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

TEST_CASE("blocks: a rank that never arrives is named and no other rank spins on") {
  const BlockWorld world(3, 2);
  const BlockData<float> data(3, 100, false, true);
  std::atomic<int> lost = 0;
  std::vector<std::thread> threads;
  for (const int rank : {0, 2})
    for (const int block : {0, 1})
      threads.emplace_back([&, rank, block] {
        // Rank 0 has a small budget; rank 2 has an unlimited one and ends only when rank 0 tells
        // it.
        const auto context = world.context(rank, block, rank == 0 ? 2000 : 1ull << 60);
        lost += !one_sided::two_shot_all_reduce<Side>(SlowThread{}, context, data.buffers);
      });
  for (auto& thread : threads) thread.join();
  CHECK(lost == 4);
  CHECK(world.mailboxes[0]->stall.waiting_for == 1 + 1);
  CHECK(world.mailboxes[0]->stall.number == 1);
  CHECK(world.mailboxes[2]->stall.waiting_for == 0);
  CHECK(world.mailboxes[1]->aborted.value == 1);
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
