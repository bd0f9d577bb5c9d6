// verify() accepts every algorithm of the catalogue, and names the fault of schedules that are
// broken on purpose.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/doubling/barrier.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/algorithms/tree/binomial.hpp"
#include "collectives/proof/verify.hpp"
#include "collectives/proof/verify_algorithm.hpp"
#include "tests/sample.hpp"

namespace ringside::collectives {
namespace {

using Findings = std::vector<std::string>;

std::vector<Schedule> schedules_for(Collective collective, int size, int root = 0) {
  return make_schedules(find_algorithm(collective), size, root);
}

// One sentence a line, so that a failing test shows both sides.
std::string text(const Findings& findings) {
  return fmt::format("{}", fmt::join(findings, "\n"));
}

bool contains(const Findings& findings, std::string_view sentence) {
  for (const std::string& finding : findings) {
    if (finding == sentence) return true;
  }
  return false;
}

TEST_CASE("every algorithm in the catalogue is right for 1 to 64 ranks and every root") {
  // A sanitizer, which makes it 20 times slower, finds no more in the other roots of large worlds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int every_root_up_to = 16;
#else
  constexpr int every_root_up_to = 64;
#endif
  testing::Sample sample;
  for (const Algorithm& algorithm : all_algorithms()) {
    for (int size = 1; size <= 64; ++size) {
      if (!sample.takes()) continue;
      const int roots = has_root(algorithm.collective) ? size : 1;
      for (int root = 0; root < roots; root += size <= every_root_up_to ? 1 : (size - 1) / 2) {
        REQUIRE(text(verify(algorithm, size, root)) == text({}));
      }
    }
  }
}

// An algorithm with a typical mistake.
Algorithm broken(Collective collective, Schedule (*make)(int size, int rank, int root)) {
  return {collective, "broken", make};
}

TEST_CASE("wrong direction: sends go to the left, receives still come from the left") {
  const Algorithm algorithm = broken(Collective::all_reduce, [](int size, int rank, int) {
    Schedule schedule = ring_all_reduce(size, rank);
    for (Step& step : schedule.steps) step.send->to = wrap(rank - 1, size);
    return schedule;
  });
  const Findings findings = verify(algorithm, 4);
  CHECK(contains(findings,
                 "broken all_reduce, 4 ranks: step 0: rank 0 sends chunk 3 to rank 3, but rank 3 "
                 "expects chunk 1 from rank 2"));
  CHECK(contains(findings,
                 "broken all_reduce, 4 ranks: step 5: rank 3 waits for chunk 0 from rank 2, but "
                 "rank 2 sends chunk 0 to rank 1"));
  CHECK(findings.size() == 6 * 4 * 2);  // every send and every receive, in every step
}

TEST_CASE("on two ranks the wrong direction is right: both neighbours are the same rank") {
  std::vector<Schedule> schedules = schedules_for(Collective::all_reduce, 2);
  for (int rank = 0; rank < 2; ++rank) {
    for (Step& step : schedules[rank].steps) step.send->to = wrap(rank - 1, 2);
  }
  CHECK(text(verify(Collective::all_reduce, schedules)) == text({}));
}

TEST_CASE("wrong chunk: one rank sends a chunk that its neighbour does not expect") {
  std::vector<Schedule> schedules = schedules_for(Collective::all_reduce, 4);
  schedules[2].steps.at(3).send->chunks = {1};
  CHECK(text(verify(Collective::all_reduce, schedules)) ==
        text({"step 3: rank 2 sends chunk 1 to rank 3, but rank 3 expects chunk 2 from rank 2"}));
}

TEST_CASE("wrong chunk on both sides: the messages match, but the sums are wrong") {
  std::vector<Schedule> schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[2].steps.at(2).send->chunks = {0};  // should be 3, on its way to its owner
  schedules[3].steps.at(2).receive->chunks = {0};
  CHECK(text(verify(Collective::reduce_scatter, schedules)) ==
        text({"at the end chunk 3 on rank 3 lacks ranks 0 to 2"}));
}

TEST_CASE(
    "wrong chunk everywhere: the reduce-scatter counted from r instead of r-1 leaves rank r with "
    "chunk r+1") {
  const Algorithm algorithm = broken(Collective::reduce_scatter, [](int size, int rank, int) {
    Schedule schedule = ring_reduce_scatter(size, rank);
    for (Step& step : schedule.steps) {
      step.send->chunks.first = wrap(step.send->chunks.first + 1, size);
      step.receive->chunks.first = wrap(step.receive->chunks.first + 1, size);
    }
    return schedule;
  });
  CHECK(text(verify(algorithm, 3)) ==
        text({"broken reduce_scatter, 3 ranks: at the end chunk 0 on rank 0 lacks ranks 1 and 2",
              "broken reduce_scatter, 3 ranks: at the end chunk 1 on rank 1 lacks ranks 0 and 2",
              "broken reduce_scatter, 3 ranks: at the end chunk 2 on rank 2 lacks ranks 0 and 1"}));
}

TEST_CASE("one step short: the all-gather stops too early") {
  const Algorithm algorithm = broken(Collective::all_reduce, [](int size, int rank, int) {
    Schedule schedule = ring_all_reduce(size, rank);
    schedule.steps.pop_back();
    return schedule;
  });
  CHECK(text(verify(algorithm, 4)) ==
        text({"broken all_reduce, 4 ranks: at the end chunk 1 on rank 0 lacks rank 1",
              "broken all_reduce, 4 ranks: at the end chunk 2 on rank 1 lacks rank 2",
              "broken all_reduce, 4 ranks: at the end chunk 3 on rank 2 lacks rank 3",
              "broken all_reduce, 4 ranks: at the end chunk 0 on rank 3 lacks rank 0"}));
}

TEST_CASE("one step short on one rank: the ranks disagree on the number of steps") {
  std::vector<Schedule> schedules = schedules_for(Collective::all_reduce, 4);
  schedules[2].steps.pop_back();
  CHECK(text(verify(Collective::all_reduce, schedules)) ==
        text({"rank 2 takes 5 steps, but rank 0 takes 6 (a rank with nothing to do takes an empty "
              "step)"}));
}

TEST_CASE("added twice: the ranks repeat the last step of the reduce-scatter") {
  std::vector<Schedule> schedules = schedules_for(Collective::reduce_scatter, 3);
  for (Schedule& schedule : schedules) schedule.steps.push_back(schedule.steps.back());
  CHECK(text(verify(Collective::reduce_scatter, schedules)) ==
        text({"at the end chunk 0 on rank 0 holds rank 1 twice and rank 2 twice",
              "at the end chunk 1 on rank 1 holds rank 0 twice and rank 2 twice",
              "at the end chunk 2 on rank 2 holds rank 0 twice and rank 1 twice"}));
}

TEST_CASE("added twice and one lost, in one chunk") {
  // A reduce to rank 1, in which rank 2 sends its buffer three times and rank 0 never.
  std::vector<Schedule> schedules(3);
  const auto message = [&](int step, int from, int to, Action action) {
    schedules[from].steps[step].send = Send{.to = to, .chunks = {0}};
    schedules[to].steps[step].receive = Receive{.from = from, .chunks = {0}, .action = action};
  };
  for (Schedule& schedule : schedules) schedule.steps.resize(3);
  message(0, 2, 1, Action::add);
  message(1, 2, 1, Action::add);
  message(2, 2, 1, Action::add);
  CHECK(text(verify(Collective::reduce, schedules, 1)) ==
        text({"at the end chunk 0 on rank 1 holds rank 2 (3 times) and lacks rank 0"}));
}

TEST_CASE("overwritten where it should be added, and added where it should be overwritten") {
  std::vector<Schedule> schedules = schedules_for(Collective::reduce, 4);
  for (Schedule& schedule : schedules) {
    for (Step& step : schedule.steps) {
      if (step.receive) step.receive->action = Action::overwrite;
    }
  }
  CHECK(text(verify(Collective::reduce, schedules)) ==
        text({"at the end chunk 0 on rank 0 lacks ranks 0 to 2"}));

  schedules = schedules_for(Collective::broadcast, 4);
  for (Schedule& schedule : schedules) {
    for (Step& step : schedule.steps) {
      if (step.receive) step.receive->action = Action::add;
    }
  }
  CHECK(text(verify(Collective::broadcast, schedules)) ==
        text({"at the end chunk 0 on rank 1 should not hold rank 1",
              "at the end chunk 0 on rank 2 should not hold rank 2",
              "at the end chunk 0 on rank 3 should not hold ranks 2 and 3"}));
}

TEST_CASE("a root that is not the promised one") {
  CHECK(text(verify(Collective::broadcast, schedules_for(Collective::broadcast, 2, 1), 0)) ==
        text({"at the end chunk 0 on rank 0 should not hold rank 1 and lacks rank 0",
              "at the end chunk 0 on rank 1 should not hold rank 1 and lacks rank 0"}));
}

TEST_CASE("an all-gather must deliver the inputs, not their sums") {
  CHECK(contains(verify(Collective::all_gather, schedules_for(Collective::all_reduce, 3)),
                 "at the end chunk 0 on rank 2 should not hold ranks 1 and 2"));
}

TEST_CASE(
    "another order of addition: a one-shot all-reduce in which each rank begins with its own "
    "buffer") {
  const Algorithm algorithm = broken(Collective::all_reduce, [](int size, int rank, int) {
    Schedule schedule{.chunks = 1, .steps = {}};
    for (int s = 1; s < size; ++s) {
      schedule.steps.push_back(
          {.send = Send{.to = wrap(rank + s, size), .chunks = {0}, .input = 0},
           .receive = Receive{.from = wrap(rank - s, size), .chunks = {0}, .action = Action::add}});
    }
    return schedule;
  });
  CHECK(text(verify(algorithm, 2)) == text({}));  // a+b is b+a
  CHECK(text(verify(algorithm, 3)) ==
        text({"broken all_reduce, 3 ranks: at the end chunk 0 on rank 1 was added up in another "
              "order than on rank 0: the last bits may "
              "differ",
              "broken all_reduce, 3 ranks: at the end chunk 0 on rank 2 was added up in another "
              "order than on rank 0: the last bits may "
              "differ"}));
}

TEST_CASE("a rank that forgets its own input, and a rank that sends its input instead of its sum") {
  std::vector<Schedule> schedules =
      make_schedules(find_algorithm(Collective::all_reduce, "one_shot"), 3);
  schedules[1].steps.at(2) = {};
  CHECK(text(verify(Collective::all_reduce, schedules)) ==
        text({"at the end chunk 0 on rank 1 lacks rank 1"}));

  schedules = make_schedules(find_algorithm(Collective::all_reduce, "recursive_doubling"), 4);
  for (Schedule& schedule : schedules) schedule.steps.at(1).send->input = 0;
  CHECK(contains(verify(Collective::all_reduce, schedules),
                 "at the end chunk 0 on rank 0 lacks rank 3"));
}

TEST_CASE("wrong fold: the representative of a pair sends its sum back before it is complete") {
  std::vector<Schedule> schedules =
      make_schedules(find_algorithm(Collective::all_reduce, "recursive_doubling"), 3);
  for (Schedule& schedule : schedules) std::swap(schedule.steps.at(1), schedule.steps.at(2));
  CHECK(text(verify(Collective::all_reduce, schedules)) ==
        text({"at the end chunk 0 on rank 1 lacks rank 2"}));
}

TEST_CASE("an all-to-all must deliver the right chunk of the right rank") {
  std::vector<Schedule> schedules = schedules_for(Collective::all_to_all, 3);
  schedules[1].steps.at(1).send->input = 2;  // to rank 0
  CHECK(text(verify(Collective::all_to_all, schedules)) ==
        text({"at the end chunk 1 on rank 0 should hold chunk 0 of rank 1, not chunk 2"}));
  schedules[1].steps.at(1).send->input = 3;
  CHECK(text(verify(Collective::all_to_all, schedules)) ==
        text({"step 1: rank 1 sends chunk 3 of its input as chunk 1 to rank 0, but the chunks are "
              "0 to 2"}));
}

TEST_CASE("a send from another chunk than the receiver's takes what the rank holds") {
  using Schedules = std::vector<Schedule>;
  Schedules schedules = make_schedules(find_algorithm(Collective::all_to_all, "hierarchical"), 4);
  CHECK(verify(Collective::all_to_all, schedules).empty());
  Schedules other = schedules;
  other[3].steps.at(3).send->held = 2;  // to rank 1: its blocks for its own host
  CHECK(text(verify(Collective::all_to_all, other)) ==
        text({"at the end chunk 2 on rank 1 should hold chunk 1 of rank 2, not chunk 3",
              "at the end chunk 3 on rank 1 should hold chunk 1 of rank 3, not chunk 3"}));
  other[3].steps.at(3).send->held = 3;
  CHECK(text(verify(Collective::all_to_all, other)) ==
        text({"step 3: rank 3 sends chunks 3 to 4 as chunks 2 to 3 to rank 1, but the chunks are 0 "
              "to 3"}));
  other = make_schedules(find_algorithm(Collective::all_gather, "ring"), 3);
  other[1].steps.at(0).send->held = 0;
  CHECK(text(verify(Collective::all_gather, other)) ==
        text({"step 0: rank 1 sends chunk 0 as chunk 1, and only an all_to_all may do so"}));
}

TEST_CASE("only in an all-to-all may a chunk end as another chunk") {
  std::vector<Schedule> schedules = schedules_for(Collective::reduce_scatter, 3);
  schedules[1].steps.at(0).send->input = 1;
  CHECK(text(verify(Collective::reduce_scatter, schedules)) ==
        text({"step 0: rank 1 sends chunk 1 of its input as chunk 0, and only an all_to_all may do "
              "so"}));
}

TEST_CASE("a gather that forgets a rank, and a scatter from another root") {
  std::vector<Schedule> schedules = schedules_for(Collective::gather, 3, 1);
  for (Schedule& schedule : schedules) schedule.steps.pop_back();
  CHECK(text(verify(Collective::gather, schedules, 1)) ==
        text({"at the end chunk 0 on rank 1 should not hold rank 1 and lacks rank 0"}));
  CHECK(contains(verify(Collective::scatter, schedules_for(Collective::scatter, 3, 1), 0),
                 "at the end chunk 2 on rank 2 should not hold rank 1 and lacks rank 0"));
}

TEST_CASE("a barrier one step short: each rank misses some ranks") {
  std::vector<Schedule> schedules = schedules_for(Collective::barrier, 6);
  for (Schedule& schedule : schedules) schedule.steps.pop_back();
  const Findings findings = verify(Collective::barrier, schedules);
  CHECK(findings.size() == 6);
  CHECK(contains(findings, "at the end rank 0 has not heard from ranks 1 and 2"));
  CHECK(contains(findings, "at the end rank 5 has not heard from ranks 0 and 1"));
}

TEST_CASE("what arrives in a step is not sent on in the same step") {
  // After a chain 0 -> 1 -> 2 in one step, rank 2 has not heard from rank 0.
  std::vector<Schedule> schedules(3);
  for (Schedule& schedule : schedules) schedule.steps.resize(1);
  schedules[0].steps.at(0).send = Send{.to = 1, .chunks = {0, 0}};
  schedules[1].steps.at(0).receive =
      Receive{.from = 0, .chunks = {0, 0}, .action = Action::overwrite};
  schedules[1].steps.at(0).send = Send{.to = 2, .chunks = {0, 0}};
  schedules[2].steps.at(0).receive =
      Receive{.from = 1, .chunks = {0, 0}, .action = Action::overwrite};
  CHECK(contains(verify(Collective::barrier, schedules),
                 "at the end rank 2 has not heard from rank 0"));
}

TEST_CASE("messages that nobody sends, that nobody expects, or of another length") {
  std::vector<Schedule> schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[0].steps.at(1).send.reset();
  CHECK(text(verify(Collective::reduce_scatter, schedules)) ==
        text({"step 1: rank 1 waits for chunk 2 from rank 0, but rank 0 sends nothing"}));

  schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[0].steps.at(1).receive.reset();
  CHECK(text(verify(Collective::reduce_scatter, schedules)) ==
        text({"step 1: rank 3 sends chunk 1 to rank 0, but rank 0 expects nothing"}));

  schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[0].steps.at(1).send->chunks = {2, 2};
  CHECK(text(verify(Collective::reduce_scatter, schedules)) ==
        text({"step 1: rank 0 sends chunks 2 to 3 to rank 1, but rank 1 expects chunk 2 from rank "
              "0"}));
}

TEST_CASE("the chunk that is expected, but from another rank") {
  std::vector<Schedule> schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[3].steps.at(1).receive->from = 1;
  CHECK(text(verify(Collective::reduce_scatter, schedules)) ==
        text({"step 1: rank 2 sends chunk 0 to rank 3, but rank 3 expects chunk 0 from rank 1",
              "step 1: rank 3 waits for chunk 0 from rank 1, but rank 1 sends chunk 3 to rank 2"}));
}

TEST_CASE("peers and chunks that do not exist") {
  std::vector<Schedule> schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[3].steps.at(0).send->to = 4;
  Findings findings = verify(Collective::reduce_scatter, schedules);
  CHECK(contains(findings, "step 0: rank 3 sends chunk 2 to rank 4, but the ranks are 0 to 3"));
  CHECK(
      contains(findings,
               "step 0: rank 0 waits for chunk 2 from rank 3, but rank 3 sends chunk 2 to rank 4"));

  schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[0].steps.at(2).receive->from = -1;
  CHECK(contains(verify(Collective::reduce_scatter, schedules),
                 "step 2: rank 0 waits for chunk 0 from rank -1, but the ranks are 0 to 3"));

  schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[1].steps.at(0).send->to = 1;
  CHECK(contains(verify(Collective::reduce_scatter, schedules),
                 "step 0: rank 1 sends chunk 0 to rank 1, but rank 1 expects chunk 3 from rank 0"));

  schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[0].steps.at(0).send->chunks = {4};
  CHECK(contains(verify(Collective::reduce_scatter, schedules),
                 "step 0: rank 0 sends chunk 4 to rank 1, but the chunks are 0 to 3"));

  schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[0].steps.at(0).send->chunks = {3, 2};
  CHECK(contains(verify(Collective::reduce_scatter, schedules),
                 "step 0: rank 0 sends chunks 3 to 4 to rank 1, but the chunks are 0 to 3"));

  schedules = schedules_for(Collective::reduce_scatter, 4);
  schedules[0].steps.at(0).receive->chunks = {-1};
  CHECK(contains(verify(Collective::reduce_scatter, schedules),
                 "step 0: rank 0 waits for chunk -1 from rank 3, but the chunks are 0 to 3"));
}

TEST_CASE("ranks with different numbers of chunks, and too few chunks for the collective") {
  std::vector<Schedule> schedules = schedules_for(Collective::all_reduce, 4);
  schedules[1].chunks = 5;
  CHECK(text(verify(Collective::all_reduce, schedules)) ==
        text({"rank 1 cuts the buffer into 5 chunks, but rank 0 into 4"}));
  CHECK(
      text(verify(Collective::all_gather, schedules_for(Collective::broadcast, 4))) ==
      text({"all_gather on 4 ranks needs 4 chunks, one for each rank, but Schedule::chunks is 1"}));
  CHECK(text(verify(Collective::all_reduce, {Schedule{.chunks = 0, .steps = {}}})) ==
        text({"the buffer must be cut into at least 1 chunk, not into 0"}));
}

TEST_CASE("a schedule that doubles its sums many times over is reported, not overflowed") {
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    const Step step{.send = Send{.to = 1 - rank, .chunks = {0}},
                    .receive = Receive{.from = 1 - rank, .chunks = {0}, .action = Action::add}};
    schedules[rank].steps.assign(200, step);
  }
  CHECK(verify(Collective::all_reduce, schedules).size() == 2);
}

TEST_CASE("verify refuses no schedules and roots that do not exist") {
  CHECK_THROWS_WITH_AS(verify(Collective::all_reduce, std::vector<Schedule>{}),
                       "verify needs the schedule of at least 1 rank", Error);
  CHECK_THROWS_WITH_AS(verify(Collective::broadcast, std::vector<Schedule>(2), 2),
                       "the root must be one of the ranks 0 to 1, not 2", Error);
}

}  // namespace

TEST_CASE("cases in words") {
  CHECK(case_in_words(find_algorithm(Collective::barrier), 1, 0) ==
        "dissemination barrier, 1 rank");
  CHECK(case_in_words(find_algorithm(Collective::reduce), 4, 2) ==
        "binomial reduce, 4 ranks, root 2");
}

}  // namespace ringside::collectives
