// The schedules agree with the tables in algorithms/*.hpp, and the catalogue lists them all.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <map>
#include <set>
#include <string>

#include "base/error.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/direct/direct.hpp"
#include "collectives/algorithms/direct/linear.hpp"
#include "collectives/algorithms/direct/pairwise.hpp"
#include "collectives/algorithms/doubling/barrier.hpp"
#include "collectives/algorithms/doubling/bruck.hpp"
#include "collectives/algorithms/doubling/halving_doubling.hpp"
#include "collectives/algorithms/doubling/recursive_doubling.hpp"
#include "collectives/algorithms/hierarchical/all_to_all.hpp"
#include "collectives/algorithms/ring/chain.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/algorithms/tree/binomial.hpp"

namespace ringside::collectives {
namespace {

// A step in short: "3>1 2<3+" sends chunk 3 to rank 1, and receives chunk 2 from rank 3 and adds it
// ("=" overwrites). "i0:3>1" sends chunk 0 of the input to rank 1 as chunk 3, "h0:3>1" what the
// rank holds in chunk 0.
std::string short_form(const Step& step) {
  std::string text;
  const auto chunks = [](ChunkRange range) {
    std::vector<int> names;
    for (int i = 0; i < range.count; ++i) names.push_back(range.at(i));
    return range.count <= 1 || range.modulus > 0
               ? fmt::format("{}", fmt::join(names, ","))
               : fmt::format("{}-{}", range.first, range.first + range.count - 1);
  };
  if (step.send && step.send->input) text += fmt::format("i{}:", *step.send->input);
  if (step.send && step.send->held) text += fmt::format("h{}:", *step.send->held);
  if (step.send) text += fmt::format("{}>{}", chunks(step.send->chunks), step.send->to);
  if (step.send && step.receive) text += " ";
  if (step.receive) {
    text += fmt::format("{}<{}{}", chunks(step.receive->chunks), step.receive->from,
                        step.receive->action == Action::add ? "+" : "=");
  }
  return text.empty() ? "idle" : text;
}

std::vector<std::string> short_form(const Schedule& schedule) {
  std::vector<std::string> lines;
  for (const Step& step : schedule.steps) lines.push_back(short_form(step));
  return lines;
}

using Lines = std::vector<std::string>;

int log2_rounded_up(int n) {
  int result = 0;
  while ((1 << result) < n) ++result;
  return result;
}

TEST_CASE("the ring all-reduce of four ranks, step by step") {
  CHECK(ring_all_reduce(4, 0).chunks == 4);
  CHECK(short_form(ring_all_reduce(4, 0)) ==
        Lines{"3>1 2<3+", "2>1 1<3+", "1>1 0<3+", "0>1 3<3=", "3>1 2<3=", "2>1 1<3="});
  CHECK(short_form(ring_all_reduce(4, 1)) ==
        Lines{"0>2 3<0+", "3>2 2<0+", "2>2 1<0+", "1>2 0<0=", "0>2 3<0=", "3>2 2<0="});
  CHECK(short_form(ring_all_reduce(4, 2)) ==
        Lines{"1>3 0<1+", "0>3 3<1+", "3>3 2<1+", "2>3 1<1=", "1>3 0<1=", "0>3 3<1="});
  CHECK(short_form(ring_all_reduce(4, 3)) ==
        Lines{"2>0 1<2+", "1>0 0<2+", "0>0 3<2+", "3>0 2<2=", "2>0 1<2=", "1>0 0<2="});
}

TEST_CASE("the ring all-reduce is the reduce-scatter followed by the all-gather") {
  for (int size = 1; size <= 64; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      std::vector<Step> both = ring_reduce_scatter(size, rank).steps;
      for (const Step& step : ring_all_gather(size, rank).steps) both.push_back(step);
      REQUIRE(ring_all_reduce(size, rank).steps == both);
    }
  }
}

TEST_CASE(
    "in the ring every rank sends one chunk to the right in every step, 2 (size-1) chunks in all") {
  for (int size = 1; size <= 64; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      const Schedule schedule = ring_all_reduce(size, rank);
      REQUIRE(schedule.chunks == size);
      REQUIRE(schedule.steps.size() == static_cast<size_t>(2 * (size - 1)));
      for (const Step& step : schedule.steps) {
        REQUIRE((step.send && step.receive));
        REQUIRE(step.send->to == (rank + 1) % size);
        REQUIRE(step.send->chunks.count == 1);
        REQUIRE(step.receive->from == (rank + size - 1) % size);
      }
    }
  }
}

TEST_CASE("the binomial broadcast of five ranks from root 1") {
  // The indices 0 1 2 3 4 in the tree are the ranks 1 2 3 4 0.
  CHECK(short_form(binomial_broadcast(5, 1, 1)) == Lines{"0>0", "0>3", "0>2"});
  CHECK(short_form(binomial_broadcast(5, 2, 1)) == Lines{"idle", "idle", "0<1="});
  CHECK(short_form(binomial_broadcast(5, 3, 1)) == Lines{"idle", "0<1=", "0>4"});
  CHECK(short_form(binomial_broadcast(5, 4, 1)) == Lines{"idle", "idle", "0<3="});
  CHECK(short_form(binomial_broadcast(5, 0, 1)) == Lines{"0<1=", "idle", "idle"});
}

TEST_CASE("the binomial reduce is the broadcast in reverse, with additions") {
  for (int size = 1; size <= 64; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      const int root = size / 3;
      const Schedule down = binomial_broadcast(size, rank, root);
      const Schedule up = binomial_reduce(size, rank, root);
      REQUIRE(down.steps.size() == up.steps.size());
      for (size_t s = 0; s < up.steps.size(); ++s) {
        const Step& there = down.steps[up.steps.size() - 1 - s];
        const Step& back = up.steps[s];
        REQUIRE(there.send.has_value() == back.receive.has_value());
        REQUIRE(there.receive.has_value() == back.send.has_value());
        if (back.receive)
          REQUIRE(*back.receive == Receive{there.send->to, there.send->chunks, Action::add});
        if (back.send) REQUIRE(*back.send == Send{there.receive->from, there.receive->chunks});
      }
    }
  }
}

int chunks_sent(const Schedule& schedule) {
  int sent = 0;
  for (const Step& step : schedule.steps) sent += step.send ? step.send->chunks.count : 0;
  return sent;
}

TEST_CASE("halving and doubling on four ranks, step by step") {
  CHECK(short_form(halving_doubling_all_reduce(4, 0)) ==
        Lines{"2-3>2 0-1<2+", "1>1 0<1+", "0>1 1<1=", "0-1>2 2-3<2="});
  CHECK(short_form(halving_doubling_all_reduce(4, 3)) ==
        Lines{"0-1>1 2-3<1+", "2>2 3<2+", "3>2 2<2=", "2-3>1 0-1<1="});
}

TEST_CASE("halving and doubling on six ranks: 0 speaks for 1, and 2 for 3") {
  CHECK(short_form(halving_doubling_all_reduce(6, 1)) ==
        Lines{"0-5>0", "idle", "idle", "idle", "idle", "0-5<0="});
  CHECK(short_form(halving_doubling_all_reduce(6, 2)) ==
        Lines{"0-5<3+", "4-5>5 0-3<5+", "0-1>0 2-3<0+", "2-3>0 0-1<0=", "0-3>5 4-5<5=", "0-5>3"});
  CHECK(short_form(halving_reduce_scatter(6, 3)) == Lines{"0-5>2", "idle", "idle", "3<2="});
  CHECK(short_form(doubling_all_gather(6, 3)) == Lines{"3>2", "idle", "idle", "0-5<2="});
}

TEST_CASE(
    "halving and doubling sends as many chunks as the ring, in 2 log2(size) steps, if the size is "
    "a "
    "power of two") {
  for (int size = 2; size <= 64; size *= 2) {
    for (int rank = 0; rank < size; ++rank) {
      REQUIRE(chunks_sent(halving_doubling_all_reduce(size, rank)) == 2 * (size - 1));
      REQUIRE(halving_doubling_all_reduce(size, rank).steps.size() ==
              static_cast<size_t>(2 * log2_rounded_up(size)));
      REQUIRE(recursive_doubling_all_reduce(size, rank).steps.size() ==
              static_cast<size_t>(log2_rounded_up(size)));
    }
  }
}

TEST_CASE("recursive doubling on five ranks: 0 speaks for 1, the parties are 0, 2, 3 and 4") {
  CHECK(short_form(recursive_doubling_all_reduce(5, 0)) ==
        Lines{"0<1+", "0>2 0<2+", "0>3 0<3+", "0>1"});
  CHECK(short_form(recursive_doubling_all_reduce(5, 1)) == Lines{"0>0", "idle", "idle", "0<0="});
  CHECK(short_form(recursive_doubling_all_reduce(5, 4)) ==
        Lines{"idle", "0>3 0<3+", "0>2 0<2+", "idle"});
}

TEST_CASE("one-shot on three ranks: in step s the ranks a and b with a + b = s exchange inputs") {
  CHECK(short_form(one_shot_all_reduce(3, 0)) ==
        Lines{"i0:0>0 0<0=", "i0:0>1 0<1+", "i0:0>2 0<2+", "idle", "idle"});
  CHECK(short_form(one_shot_all_reduce(3, 1)) ==
        Lines{"idle", "i0:0>0 0<0=", "i0:0>1 0<1+", "i0:0>2 0<2+", "idle"});
}

TEST_CASE("two-shot sends as many chunks as the ring, to all ranks") {
  CHECK(short_form(two_shot_all_reduce(3, 0)) ==
        Lines{"1>1 0<2+", "2>2 0<1+", "0>1 2<2=", "0>2 1<1="});
  for (int size = 1; size <= 64; ++size)
    for (int rank = 0; rank < size; ++rank)
      REQUIRE(chunks_sent(two_shot_all_reduce(size, rank)) == 2 * (size - 1));
}

TEST_CASE("the naive all-reduce sends everything through rank 0") {
  CHECK(short_form(naive_all_reduce(3, 0)) == Lines{"0<1+", "0<2+", "0>1", "0>2"});
  CHECK(short_form(naive_all_reduce(3, 2)) == Lines{"idle", "0>0", "idle", "0<0="});
}

TEST_CASE("chains of four ranks from and to root 2") {
  CHECK(short_form(chain_broadcast(4, 2, 2)) == Lines{"0>3", "idle", "idle"});
  CHECK(short_form(chain_broadcast(4, 0, 2)) == Lines{"idle", "0<3=", "0>1"});
  CHECK(short_form(chain_reduce(4, 1, 2)) == Lines{"0>0", "idle", "idle"});
  CHECK(short_form(chain_reduce(4, 2, 2)) == Lines{"idle", "idle", "0<3+"});
}

TEST_CASE("gather and scatter of three ranks, root 1, and the all-to-all") {
  CHECK(short_form(linear_gather(3, 1, 1)) == Lines{"2<2=", "0<0="});
  CHECK(short_form(linear_gather(3, 0, 1)) == Lines{"idle", "0>1"});
  CHECK(short_form(linear_scatter(3, 1, 1)) == Lines{"2>2", "0>0"});
  CHECK(short_form(pairwise_all_to_all(3, 0)) == Lines{"idle", "i1:0>1 1<1=", "i2:0>2 2<2="});
  CHECK(short_form(pairwise_all_to_all(3, 1)) == Lines{"i2:1>2 2<2=", "i0:1>0 0<0=", "idle"});
}

TEST_CASE("Bruck's all-to-all: own copies, then one message for each bit of the distance") {
  CHECK(short_form(bruck_all_to_all(4, 0)) ==
        Lines{"i3:1>0 1<0=", "i2:2>0 2<0=", "i1:3>0 3<0=", "h1:0,2>3 1,3<1=", "h2:0,1>2 2,3<2="});
  for (int size = 1; size <= 64; ++size)
    for (int rank = 0; rank < size; ++rank) {
      const Schedule schedule = bruck_all_to_all(size, rank);
      int messages = 0, blocks = 0, bits = 0;
      for (const Step& step : schedule.steps) {
        if (step.send->to == rank) continue;
        ++messages;
        blocks += step.send->chunks.count;
      }
      for (int e = 1; e < size; ++e) bits += std::popcount(static_cast<unsigned>(e));
      REQUIRE(messages == log2_rounded_up(size));
      REQUIRE(blocks == bits);  // a block goes once for each bit of its distance
    }
}

TEST_CASE("the all-to-all in two levels: a message for each rank of the host, and for each host") {
  CHECK(short_form(hierarchical_all_to_all_of(4, 0, 2)) ==
        Lines{"idle", "i1:0,2>1 1,3<1=", "idle", "h2:0-1>2 2-3<2="});
  for (const auto& [size, per_host] : {std::pair(6, 2), {6, 3}, {8, 2}, {8, 4}, {12, 3}, {16, 4}})
    for (int rank = 0; rank < size; ++rank) {
      std::map<bool, int> messages, blocks;  // [whether it leaves the host]
      for (const Step& step : hierarchical_all_to_all_of(size, rank, per_host).steps) {
        if (!step.send) continue;
        const bool leaves = step.send->to / per_host != rank / per_host;
        ++messages[leaves];
        blocks[leaves] += step.send->chunks.count;
      }
      const int hosts = size / per_host;
      REQUIRE(messages == std::map<bool, int>{{false, per_host - 1}, {true, hosts - 1}});
      REQUIRE(blocks[true] == size - per_host);  // each once, as in a pairwise exchange
      REQUIRE(blocks[false] == (per_host - 1) * hosts);
    }
}

TEST_CASE("trees and barrier take ceil(log2(size)) steps, and a barrier has no payload") {
  for (int size = 1; size <= 64; ++size) {
    const size_t steps = log2_rounded_up(size);
    for (int rank = 0; rank < size; ++rank) {
      REQUIRE(binomial_broadcast(size, rank, 0).steps.size() == steps);
      REQUIRE(binomial_reduce(size, rank, size - 1).steps.size() == steps);
      const Schedule barrier = dissemination_barrier(size, rank);
      REQUIRE(barrier.steps.size() == steps);
      for (const Step& step : barrier.steps) {
        REQUIRE((step.send && step.receive));
        REQUIRE(step.send->chunks.count == 0);
        REQUIRE(step.receive->chunks.count == 0);
      }
    }
  }
}

TEST_CASE("a single rank has nothing to do in any algorithm") {
  for (const Algorithm& algorithm : all_algorithms()) {
    CAPTURE(algorithm.title());
    CHECK(algorithm.make(1, 0, 0).steps.empty());
    CHECK(algorithm.make(1, 0, 0).chunks == 1);
  }
}

TEST_CASE(
    "the catalogue has an algorithm for every collective, and finds each by its unique name") {
  std::map<Collective, std::set<std::string_view>> names;
  for (const Algorithm& algorithm : all_algorithms()) {
    CAPTURE(algorithm.title());
    CHECK(names[algorithm.collective].insert(algorithm.name).second);
    CHECK(&find_algorithm(algorithm.collective, algorithm.name) == &algorithm);
  }
  for (const Collective collective : all_collectives) {
    CAPTURE(name_of(collective));
    CHECK(collective_named(name_of(collective)) == collective);
    CHECK(find_algorithm(collective).collective == collective);
    CHECK_FALSE(promise_of(collective).empty());
  }
  CHECK(find_algorithm(Collective::all_reduce).title() == "ring all_reduce");
}

TEST_CASE("the catalogue lists the names that exist when a name is wrong") {
  CHECK_THROWS_WITH_AS(
      collective_named("allreduce"),
      "there is no collective named 'allreduce' (did you mean all_reduce?); there are all_reduce, "
      "reduce_scatter, all_gather, broadcast, reduce, gather, "
      "scatter, all_to_all, barrier",
      Error);
  CHECK_THROWS_WITH_AS(
      find_algorithm(Collective::reduce, "ring"),
      "there is no algorithm named 'ring' for reduce; there are binomial, chain, halving, "
      "double_tree, binary_tree, linear",
      Error);
}

TEST_CASE("schedules need at least one rank, and a root that is one of them") {
  CHECK(make_schedules(find_algorithm(Collective::all_reduce), 3).size() == 3);
  CHECK_THROWS_WITH_AS(make_schedules(find_algorithm(Collective::all_reduce), 0),
                       "ring all_reduce needs at least 1 rank, but was asked to run on 0", Error);
  CHECK_THROWS_WITH_AS(make_schedules(find_algorithm(Collective::broadcast), 4, 4),
                       "the root of a broadcast on 4 ranks must be one of 0 to 3, not 4", Error);
}

}  // namespace
}  // namespace ringside::collectives
