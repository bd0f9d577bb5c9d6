// NCCL's algorithms as schedules: the double binary tree and PAT. Then Bruck's all-gather, the
// binomial scatter, and the two levels, with the figures that papers state for them.

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <set>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/direct/direct.hpp"
#include "collectives/algorithms/doubling/bruck.hpp"
#include "collectives/algorithms/doubling/halving_doubling.hpp"
#include "collectives/algorithms/doubling/pat.hpp"
#include "collectives/algorithms/doubling/recursive_doubling.hpp"
#include "collectives/algorithms/hierarchical/hierarchical.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/algorithms/tree/binomial_blocks.hpp"
#include "collectives/algorithms/tree/double_tree.hpp"
#include "collectives/proof/verify.hpp"
#include "tests/sample.hpp"

namespace ringside::collectives {
namespace {

template <class Make>
std::vector<Schedule> of_all_ranks(int size, const Make& make) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) schedules.push_back(make(rank));
  return schedules;
}

// NCCL finds the neighbours of a rank in the other direction than tree_parent() does: it walks up
// the bits of the rank until one is set, and looks for children of half the distance.
struct Neighbours {
  int up = -1;
  std::array<int, 2> down = {-1, -1};
};

Neighbours neighbours_by_bits(int size, int rank) {
  int bit = 1;
  while (bit < size && (bit & rank) == 0) bit <<= 1;
  if (rank == 0) return {-1, {-1, size > 1 ? bit >> 1 : -1}};
  Neighbours found;
  found.up = (rank ^ bit) | (bit << 1);
  if (found.up >= size) found.up = rank ^ bit;
  int low = bit >> 1;
  found.down[0] = low == 0 ? -1 : rank - low;
  found.down[1] = low == 0 ? -1 : rank + low;
  while (found.down[1] >= size) {
    found.down[1] = low == 0 ? -1 : rank + low;
    low >>= 1;
  }
  return found;
}

// The names of a rank in the second tree, and back.
int in_second(int size, int rank) {
  return size % 2 == 0 ? size - 1 - rank : (rank - 1 + size) % size;
}
int from_second(int size, int place) {
  if (place < 0) return -1;
  return size % 2 == 0 ? size - 1 - place : (place + 1) % size;
}

std::set<int> children(const Trees& trees, int tree, int size, int rank) {
  std::set<int> found;
  for (int other = 0; other < size; ++other)
    if (trees.parent(tree, other) == rank) found.insert(other);
  return found;
}

std::vector<int> parents(const Trees& trees, int tree, int size) {
  std::vector<int> found;
  for (int rank = 0; rank < size; ++rank) found.push_back(trees.parent(tree, rank));
  return found;
}

TEST_CASE("the trees of 13 and 14 ranks, drawn by hand") {
  const Trees odd = Trees::of_nccl(13), even = Trees::of_nccl(14);
  using Ranks = std::vector<int>;
  CHECK(parents(odd, 0, 13) == Ranks{-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8});
  CHECK(parents(odd, 1, 13) == Ranks{9, -1, 3, 5, 3, 9, 7, 5, 7, 1, 11, 0, 11});
  CHECK(parents(even, 0, 14) == Ranks{-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12});
  CHECK(parents(even, 1, 14) == Ranks{1, 5, 3, 1, 3, 13, 7, 9, 7, 5, 11, 9, 11, -1});
}

TEST_CASE("the double tree has the parents and children of NCCL for 2 to 1024 ranks") {
  for (int size = 2; size <= 1024; size += size < 130 ? 1 : 61) {
    const Trees trees = Trees::of_nccl(size);
    std::vector<std::array<std::set<int>, 2>> down(size);
    for (int rank = 0; rank < size; ++rank)
      for (const int tree : {0, 1})
        if (const int up = trees.parent(tree, rank); up >= 0) down[up][tree].insert(rank);
    for (int rank = 0; rank < size; ++rank) {
      const Neighbours first = neighbours_by_bits(size, rank),
                       second = neighbours_by_bits(size, in_second(size, rank));
      REQUIRE(trees.parent(0, rank) == first.up);
      REQUIRE(trees.parent(1, rank) == from_second(size, second.up));
      std::array<std::set<int>, 2> wanted;
      for (const int child : first.down)
        if (child >= 0) wanted[0].insert(child);
      for (const int child : second.down)
        if (child >= 0) wanted[1].insert(from_second(size, child));
      REQUIRE(down[rank] == wanted);
    }
  }
}

TEST_CASE("in the double tree slices follow each other in every second step without a pause") {
  for (int size = 2; size <= 64; ++size) {
    CAPTURE(size);
    for (const Trees& trees : {Trees::of_nccl(size), Trees::from_root(size, size / 3, 2),
                               Trees::from_root(size, 0, 1)}) {
      std::set<std::pair<int, int>> sends, receives;  // rank, step modulo 2
      for (int tree = 0; tree < trees.count(); ++tree)
        for (int rank = 0; rank < size; ++rank) {
          const int parent = trees.parent(tree, rank), step = trees.step(tree, rank);
          if (parent < 0) continue;
          REQUIRE(step > trees.step(tree, parent));
          REQUIRE(sends.insert({parent, step % 2}).second);
          REQUIRE(receives.insert({rank, step % 2}).second);
        }
    }
  }
}

TEST_CASE("nearly every rank is a leaf in one of the two trees") {
  for (int size = 2; size <= 64; ++size) {
    const Trees trees = Trees::of_nccl(size);
    int inner_in_both = 0;
    for (int rank = 0; rank < size; ++rank)
      inner_in_both +=
          !children(trees, 0, size, rank).empty() && !children(trees, 1, size, rank).empty();
    CHECK(inner_in_both <= size % 2);
  }
}

TEST_CASE("steps of an all-reduce: the tree is behind halving-doubling, and NCCL takes it anyway") {
  const auto steps = [](Schedule (*make)(int, int)) {
    return std::array{make(6, 0).steps.size(), make(16, 0).steps.size(), make(64, 0).steps.size()};
  };
  using Steps = std::array<std::size_t, 3>;
  CHECK(steps(double_tree_all_reduce) == Steps{8, 14, 22});
  CHECK(steps(ring_all_reduce) == Steps{10, 30, 126});
  CHECK(steps(halving_doubling_all_reduce) == Steps{6, 8, 12});
  CHECK(steps(recursive_doubling_all_reduce) == Steps{4, 4, 6});
}

TEST_CASE("PAT takes from log2(size) to size-1 steps, by how many chunks a message may have") {
  testing::Sample sample;
  for (int size = 1; size <= 64; ++size)
    for (int most = 1; most <= 32; most *= 2) {
      if (!sample.takes()) continue;
      CAPTURE(size);
      CAPTURE(most);
      const auto gather =
          of_all_ranks(size, [&](int rank) { return pat_all_gather_of(size, rank, most); });
      REQUIRE(verify(Collective::all_gather, gather, 0).empty());
      const auto scatter = of_all_ranks(size, [&](int rank) {
        return reversed(pat_all_gather_of(size, rank, most), Action::add);
      });
      REQUIRE(verify(Collective::reduce_scatter, scatter, 0).empty());
      int sent = 0, longest = 0;
      for (const Step& step : gather[0].steps) {
        sent += step.send->chunks.count;
        longest = std::max(longest, step.send->chunks.count);
      }
      CHECK(sent == size - 1);
      CHECK(longest <= most);
    }
  const auto steps = [](int most) { return pat_all_gather_of(64, 0, most).steps.size(); };
  CHECK(std::array{steps(1), steps(2), steps(4), steps(8), steps(16), steps(32)} ==
        std::array<std::size_t, 6>{63, 32, 17, 10, 7, 6});
}

TEST_CASE("PAT sends its shortest messages farthest, Bruck its longest") {
  const Schedule pat = pat_all_gather(8, 5), bruck = bruck_all_gather(8, 5);
  CHECK(pat.steps[0].send == Send{.to = 1, .chunks = {5}});
  CHECK(pat.steps[1].send == Send{.to = 7, .chunks = circular(5, 2, -4, 8)});
  CHECK(pat.steps[2].send == Send{.to = 6, .chunks = circular(5, 4, -2, 8)});
  CHECK(bruck.steps[0].send == Send{.to = 6, .chunks = {5}});
  CHECK(bruck.steps[2].send == Send{.to = 1, .chunks = {2, 4}});
  CHECK(bruck_all_gather(8, 1).steps[2].send == Send{.to = 5, .chunks = circular(6, 4, 1, 8)});
}

TEST_CASE("a circular range names its chunks and its pieces") {
  const ChunkRange around = circular(6, 4, 1, 8), apart = circular(1, 3, 4, 9);
  CHECK(std::array{around.at(0), around.at(1), around.at(2), around.at(3)} ==
        std::array{6, 7, 0, 1});
  CHECK(around.pieces() == 2);
  CHECK(around.piece(0) == ChunkRange{6, 2});
  CHECK(around.piece(1) == ChunkRange{0, 2});
  CHECK(std::array{apart.at(0), apart.at(1), apart.at(2)} == std::array{1, 5, 0});
  CHECK(apart.pieces() == 3);
  CHECK(apart.piece(2) == ChunkRange{0, 1});
  CHECK(contains(around, 0));
  CHECK_FALSE(contains(around, 2));
  CHECK(contains(apart, 5));
  CHECK_FALSE(contains(apart, 4));
  const ChunkRange runs = circular(6, 5, 4, 8, 2);
  CHECK(std::array{runs.at(0), runs.at(1), runs.at(2), runs.at(3), runs.at(4)} ==
        std::array{6, 7, 2, 3, 6});
  CHECK(runs.pieces() == 5);
  CHECK(runs.piece(3) == ChunkRange{3, 1});
  CHECK(contains(runs, 7));
  CHECK_FALSE(contains(runs, 4));
  CHECK(circular(-2, 2, 1, 8) == ChunkRange{6, 2});
  CHECK(circular(3, 4, -1, 8) == ChunkRange{0, 4});
  CHECK(circular(9, 1, 5, 8) == ChunkRange{1});
}

TEST_CASE("a circular range outside of the buffer, or with a chunk twice, is a fault") {
  const auto fault = [](ChunkRange range) {
    Schedule first{.chunks = 4,
                   .steps = {Step{.send = Send{.to = 1, .chunks = range}, .receive = {}}}};
    Schedule second{.chunks = 4,
                    .steps = {Step{.send = {}, .receive = Receive{0, range, Action::overwrite}}}};
    const auto found = verify(Collective::broadcast, {first, second}, 0);
    return found.empty() ? "" : found.front();
  };
  CHECK(fault({2, 4, 1, 4}) == "");
  CHECK(fault({2, 4, 1, 5}) ==
        "step 0: rank 0 sends chunks 2, 3, 4, 0 to rank 1, but the chunks are 0 to 3");
  CHECK(fault({2, 3, 2, 4}) ==
        "step 0: rank 0 sends chunks 2, 0, 2 to rank 1, but a message takes a chunk once");
}

TEST_CASE("the hierarchical all-reduce is right for any grid and any two schedules") {
  constexpr std::array<MakeSchedule, 4> everywhere = {ring_all_reduce, halving_doubling_all_reduce,
                                                      double_tree_all_reduce, two_shot_all_reduce};
  for (int hosts = 1; hosts <= 5; ++hosts)
    for (int per_host = 1; per_host <= 5; ++per_host)
      for (const MakeSchedule across : everywhere) {
        CAPTURE(hosts);
        CAPTURE(per_host);
        const int size = hosts * per_host;
        const auto by = [&](MakeSchedule scatter, MakeSchedule gather) {
          return verify(Collective::all_reduce,
                        of_all_ranks(size,
                                     [&](int rank) {
                                       return hierarchical_all_reduce_of(size, rank, per_host,
                                                                         scatter, across, gather);
                                     }),
                        0);
        };
        REQUIRE(by(ring_reduce_scatter, ring_all_gather).empty());
        REQUIRE(by(halving_reduce_scatter, bruck_all_gather).empty());
        REQUIRE(by(direct_reduce_scatter, direct_all_gather).empty());
      }
}

TEST_CASE("two hosts of two ranks: 2n cross the link, where a ring sends 3n or 6n") {
  const auto crossing = [](MakeSchedule make, std::array<int, 4> host_of) {
    double buffers = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const Schedule schedule = make(4, rank);
      for (const Step& step : schedule.steps)
        if (step.send && host_of[step.send->to] != host_of[rank])
          buffers += static_cast<double>(step.send->chunks.count) / schedule.chunks;
    }
    return buffers;
  };
  const auto hierarchical = [](int size, int rank) {
    return find_algorithm(Collective::all_reduce, "hierarchical").make(size, rank, 0);
  };
  CHECK(crossing(hierarchical, {0, 0, 1, 1}) == 2);
  CHECK(crossing(ring_all_reduce, {0, 0, 1, 1}) == 3);
  CHECK(crossing(ring_all_reduce, {0, 1, 0, 1}) == 6);
}

}  // namespace
}  // namespace ringside::collectives
