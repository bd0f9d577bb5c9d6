// The schedules themselves: what the tables in algorithms/*.hpp promise, and the catalogue that lists them.

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "base/error.hpp"
#include "collectives/algorithms/barrier.hpp"
#include "collectives/algorithms/binomial.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/ring.hpp"

namespace ringside::collectives {
namespace {

// A step in one short line: "3>1 2<3+" is chunk 3 to rank 1, and chunk 2 from rank 3, added ("=" for overwritten).
std::string short_form(const Step& step) {
  std::string text;
  if (step.send) text += fmt::format("{}>{}", step.send->chunks.first, step.send->to);
  if (step.send && step.receive) text += " ";
  if (step.receive) {
    text += fmt::format("{}<{}{}", step.receive->chunks.first, step.receive->from, step.receive->action == Action::add ? "+" : "=");
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
  CHECK(short_form(ring_all_reduce(4, 0)) == Lines{"3>1 2<3+", "2>1 1<3+", "1>1 0<3+", "0>1 3<3=", "3>1 2<3=", "2>1 1<3="});
  CHECK(short_form(ring_all_reduce(4, 1)) == Lines{"0>2 3<0+", "3>2 2<0+", "2>2 1<0+", "1>2 0<0=", "0>2 3<0=", "3>2 2<0="});
  CHECK(short_form(ring_all_reduce(4, 2)) == Lines{"1>3 0<1+", "0>3 3<1+", "3>3 2<1+", "2>3 1<1=", "1>3 0<1=", "0>3 3<1="});
  CHECK(short_form(ring_all_reduce(4, 3)) == Lines{"2>0 1<2+", "1>0 0<2+", "0>0 3<2+", "3>0 2<2=", "2>0 1<2=", "1>0 0<2="});
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

TEST_CASE("in the ring every rank sends one chunk in every step, always to the right: 2 (size-1) of size chunks in all") {
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
  // places 0 1 2 3 4 are ranks 1 2 3 4 0
  CHECK(short_form(binomial_broadcast(5, 1, 1)) == Lines{"0>0", "0>3", "0>2"});
  CHECK(short_form(binomial_broadcast(5, 2, 1)) == Lines{"idle", "idle", "0<1="});
  CHECK(short_form(binomial_broadcast(5, 3, 1)) == Lines{"idle", "0<1=", "0>4"});
  CHECK(short_form(binomial_broadcast(5, 4, 1)) == Lines{"idle", "idle", "0<3="});
  CHECK(short_form(binomial_broadcast(5, 0, 1)) == Lines{"0<1=", "idle", "idle"});
}

TEST_CASE("the binomial reduce is the broadcast read backwards, adding") {
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
        if (back.receive) REQUIRE(*back.receive == Receive{there.send->to, there.send->chunks, Action::add});
        if (back.send) REQUIRE(*back.send == Send{there.receive->from, there.receive->chunks});
      }
    }
  }
}

TEST_CASE("trees and barrier take ceil(log2(size)) steps, and a barrier carries nothing") {
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

TEST_CASE("one rank alone has nothing to do, whatever the algorithm") {
  for (const Algorithm& algorithm : all_algorithms()) {
    CAPTURE(algorithm.title());
    CHECK(algorithm.make(1, 0, 0).steps.empty());
    CHECK(algorithm.make(1, 0, 0).chunks == 1);
  }
}

TEST_CASE("the catalogue: every collective has an algorithm, no name is used twice, every name finds its own") {
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

TEST_CASE("the catalogue says what there is when a name is wrong") {
  CHECK_THROWS_WITH_AS(
      collective_named("allreduce"),
      "there is no collective named 'allreduce'; there are all_reduce, reduce_scatter, all_gather, broadcast, reduce, barrier",
      Error);
  CHECK_THROWS_WITH_AS(find_algorithm(Collective::reduce, "ring"),
                       "there is no algorithm named 'ring' for reduce; there is binomial", Error);
}

TEST_CASE("schedules are made for at least one rank, and for a root among them") {
  CHECK(make_schedules(find_algorithm(Collective::all_reduce), 3).size() == 3);
  CHECK_THROWS_WITH_AS(make_schedules(find_algorithm(Collective::all_reduce), 0),
                       "ring all_reduce needs at least 1 rank, but was asked to run on 0", Error);
  CHECK_THROWS_WITH_AS(make_schedules(find_algorithm(Collective::broadcast), 4, 4),
                       "the root of a broadcast on 4 ranks must be one of 0 to 3, not 4", Error);
}

}  // namespace
}  // namespace ringside::collectives
