// The schedules in lockstep over numbers give the same as a plain sum.

#include "collectives/proof/lockstep.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/ring/ring.hpp"

namespace ringside::collectives {
namespace {

using Numbers = std::vector<double>;

// Small integers, so that sums are exact in any order.
std::vector<Numbers> random_buffers(int size, int count) {
  std::vector<Numbers> buffers(size, Numbers(count));
  for (int rank = 0; rank < size; ++rank) {
    for (int i = 0; i < count; ++i)
      buffers[rank][i] = static_cast<double>(random_below(2001, 1, rank, i)) - 1000;
  }
  return buffers;
}

Numbers sum_of(const std::vector<Numbers>& buffers) {
  Numbers sum = buffers[0];
  for (size_t rank = 1; rank < buffers.size(); ++rank) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += buffers[rank][i];
  }
  return sum;
}

// The chunks of one rank, joined.
Numbers buffer_of(const RankState& state) {
  Numbers buffer;
  for (const Numbers& chunk : state.chunks) buffer.insert(buffer.end(), chunk.begin(), chunk.end());
  return buffer;
}

Numbers part(const Numbers& whole, const Chunks& cut, int chunk) {
  return {whole.begin() + cut.begin(chunk), whole.begin() + cut.begin(chunk + 1)};
}

// All ranks before the first step; buffers[r] is rank r's.
std::vector<RankState> start_with_numbers(const std::vector<Numbers>& buffers, int chunks) {
  const Chunks cut = Chunks::even(buffers[0].size(), chunks);
  const int size = static_cast<int>(buffers.size());
  std::vector<RankState> states = start_with_contributions(size, chunks);
  for (int rank = 0; rank < size; ++rank) {
    for (int c = 0; c < chunks; ++c) states[rank].chunks[c] = part(buffers[rank], cut, c);
    states[rank].input = states[rank].chunks;
  }
  return states;
}

std::vector<RankState> run(Collective collective, const std::vector<Numbers>& buffers,
                           int root = 0) {
  const std::vector<Schedule> schedules =
      make_schedules(find_algorithm(collective), static_cast<int>(buffers.size()), root);
  std::vector<RankState> states = start_with_numbers(buffers, schedules[0].chunks);
  run_all_steps(schedules, states);
  return states;
}

// Every size with the counts that are likely to fail: 0, one less than the ranks, as many, one
// more, odd ones, a few thousand.
template <class Check>
void for_sizes_and_counts(Check check) {
  for (int size = 1; size <= 9; ++size) {
    for (const int count : {0, 1, size - 1, size, size + 1, 7, 13, 101, 2047}) {
      CAPTURE(size);
      CAPTURE(count);
      check(size, random_buffers(size, count));
    }
  }
}

TEST_CASE("all_reduce: every rank ends with the sum") {
  for_sizes_and_counts([](int size, const std::vector<Numbers>& buffers) {
    const std::vector<RankState> states = run(Collective::all_reduce, buffers);
    for (int rank = 0; rank < size; ++rank) REQUIRE(buffer_of(states[rank]) == sum_of(buffers));
  });
}

TEST_CASE("reduce_scatter: rank r ends with chunk r of the sum") {
  for_sizes_and_counts([](int size, const std::vector<Numbers>& buffers) {
    const std::vector<RankState> states = run(Collective::reduce_scatter, buffers);
    const Chunks cut = Chunks::even(buffers[0].size(), size);
    for (int rank = 0; rank < size; ++rank)
      REQUIRE(states[rank].chunks[rank] == part(sum_of(buffers), cut, rank));
  });
}

TEST_CASE("all_gather: every rank ends with chunk c of rank c, for all c") {
  for_sizes_and_counts([](int size, const std::vector<Numbers>& buffers) {
    const std::vector<RankState> states = run(Collective::all_gather, buffers);
    const Chunks cut = Chunks::even(buffers[0].size(), size);
    for (int rank = 0; rank < size; ++rank) {
      for (int chunk = 0; chunk < size; ++chunk)
        REQUIRE(states[rank].chunks[chunk] == part(buffers[chunk], cut, chunk));
    }
  });
}

TEST_CASE("broadcast and reduce, for every root") {
  for_sizes_and_counts([](int size, const std::vector<Numbers>& buffers) {
    for (int root = 0; root < size; ++root) {
      for (const RankState& state : run(Collective::broadcast, buffers, root))
        REQUIRE(buffer_of(state) == buffers[root]);
      REQUIRE(buffer_of(run(Collective::reduce, buffers, root)[root]) == sum_of(buffers));
    }
  });
}

TEST_CASE("one step of the ring, seen on all ranks") {
  const std::vector<Schedule> schedules =
      make_schedules(find_algorithm(Collective::reduce_scatter), 3);
  std::vector<RankState> states = start_with_numbers({{1, 2, 3}, {10, 20, 30}, {100, 200, 300}}, 3);
  run_step(schedules, 0, states);
  CHECK(buffer_of(states[0]) == Numbers{1, 202, 3});      // chunk 1 came from rank 2
  CHECK(buffer_of(states[1]) == Numbers{10, 20, 33});     // chunk 2 came from rank 0
  CHECK(buffer_of(states[2]) == Numbers{110, 200, 300});  // chunk 0 came from rank 1
}

TEST_CASE("a rank sends what it held before the step, even where it receives into the same chunk") {
  std::vector<Schedule> swap(2);
  for (int rank = 0; rank < 2; ++rank) {
    swap[rank].steps.push_back(
        {.send = Send{.to = 1 - rank, .chunks = {0}},
         .receive = Receive{.from = 1 - rank, .chunks = {0}, .action = Action::overwrite}});
  }
  std::vector<RankState> states = start_with_numbers({{1}, {2}}, 1);
  run_step(swap, 0, states);
  CHECK(buffer_of(states[0]) == Numbers{2});
  CHECK(buffer_of(states[1]) == Numbers{1});
}

TEST_CASE("several chunks in one message") {
  std::vector<Schedule> schedules(2, Schedule{.chunks = 3, .steps = {Step{}}});
  schedules[0].steps.at(0).send = Send{.to = 1, .chunks = {1, 2}};
  schedules[1].steps.at(0).receive = Receive{.from = 0, .chunks = {1, 2}, .action = Action::add};
  std::vector<RankState> states = start_with_numbers({{1, 2, 3}, {10, 20, 30}}, 3);
  run_step(schedules, 0, states);
  CHECK(buffer_of(states[1]) == Numbers{10, 22, 33});
}

TEST_CASE("a step whose messages do not match is refused with the sentence of verify") {
  std::vector<Schedule> schedules = make_schedules(find_algorithm(Collective::reduce_scatter), 4);
  schedules[2].steps.at(1).send->chunks = {3};
  std::vector<RankState> states = start_with_contributions(4, 4);
  run_step(schedules, 0, states);
  CHECK_THROWS_WITH_AS(
      run_step(schedules, 1, states),
      "step 1: rank 2 sends chunk 3 to rank 3, but rank 3 expects chunk 0 from rank 2", Error);
}

TEST_CASE(
    "a schedule that ends before the others is idle from then on, and a buffer with another number "
    "of chunks than its schedule is refused") {
  std::vector<Schedule> schedules = make_schedules(find_algorithm(Collective::all_reduce), 3);
  std::vector<RankState> states = start_with_contributions(3, 3);
  schedules[1].steps.pop_back();
  CHECK_THROWS_WITH_AS(run_all_steps(schedules, states),
                       "step 3: rank 0 sends chunk 2 to rank 1, but rank 1 expects nothing", Error);

  states = start_with_contributions(3, 3);
  schedules[2].chunks = 4;
  CHECK_THROWS_WITH_AS(run_step(schedules, 0, states),
                       "rank 2's buffer is cut into 3 chunks, but its schedule speaks of 4", Error);
}

}  // namespace
}  // namespace ringside::collectives
