// Timing: start and end of actions, bubbles and waiting.

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "parallel/pipeline/proof/timing.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

Span span_of(const Schedule& lowered, const Timing& timing, int rank, const std::string& action) {
  return timing.spans[rank][index_of(lowered, rank, action)];
}

TEST_CASE("an action starts when the one before it and its message are there") {
  const Schedule lowered = lower(make_schedule("1f1b", 2, 2));
  const Timing timing = time_of(lowered, {.forward = 3, .backward = 5, .weight = 2, .message = 0});
  //     rank 0   F0 0-3    F1 3-6              B0 11-16         B1 19-24
  //     rank 1             F0 3-6    B0 6-11   F1 11-14  B1 14-19
  const auto is = [&](int rank, const std::string& action, double start, double end) {
    CAPTURE(action);
    CHECK(span_of(lowered, timing, rank, action).start == start);
    CHECK(span_of(lowered, timing, rank, action).end == end);
  };
  is(0, "0F0", 0, 3);
  is(0, "0F1", 3, 6);
  is(1, "1F0", 3, 6);
  is(1, "1B0", 6, 11);
  is(0, "0RECV_B0", 6, 11);
  is(0, "0B0", 11, 16);
  is(1, "1F1", 11, 14);
  is(1, "1B1", 14, 19);
  is(0, "0B1", 19, 24);
  CHECK(timing.step == 24);
  CHECK(timing.busy == std::vector<double>{16, 16});
  CHECK(timing.waiting == std::vector<double>{8, 0});
  CHECK(timing.bubble() == doctest::Approx(1 - 32.0 / 48));
}

TEST_CASE("a message takes its time, and a lane carries one at a time") {
  const Schedule lowered = lower(make_schedule("gpipe", 2, 2));
  const Timing timing = time_of(lowered, {.forward = 1, .backward = 2, .weight = 1, .message = 10});
  // The second activation is made at 2 and departs when the first has arrived.
  CHECK(span_of(lowered, timing, 0, "0SEND_F0").end == 11);
  CHECK(span_of(lowered, timing, 0, "0SEND_F1").start == 11);
  CHECK(span_of(lowered, timing, 1, "1F0").start == 11);
  CHECK(span_of(lowered, timing, 1, "1F1").start == 21);
  // Its own lane: the gradient does not wait for activations.
  CHECK(span_of(lowered, timing, 1, "1SEND_B0").start == 24);
  CHECK(span_of(lowered, timing, 0, "0B0").start == 34);
}

TEST_CASE("I and W together take as long as B") {
  const Durations durations{.forward = 1, .backward = 5, .weight = 2, .message = 0};
  CHECK(durations.of(Kind::backward_input) == 3);
  CHECK(durations.of(Kind::backward_weight) == 2);
  CHECK(durations.of(Kind::send_activation) == 0);
  const Timing timing = time_of(lower(make_schedule("zb_h1", 2, 4)), durations);
  CHECK(timing.busy == std::vector<double>{24, 24});
}

TEST_CASE("one rank has no bubble") {
  for (const Generator& generator : all_generators()) {
    CAPTURE(generator.name);
    const Timing timing = time_of(lower(make_schedule(generator, 1, 5)), {});
    CHECK(timing.bubble() == doctest::Approx(0));
    CHECK(timing.waiting[0] == 0);
  }
}

TEST_CASE("durations that cannot be, and schedules that hang, are refused") {
  const Schedule lowered = lower(make_schedule("1f1b", 2, 2));
  CHECK_THROWS_WITH_AS(time_of(lowered, {.forward = 1, .backward = 1, .weight = 2, .message = 0}),
                       "W is a part of backward, so it cannot take 2 where backward takes 1",
                       Error);
  CHECK_THROWS_WITH_AS(time_of(lowered, {.forward = -1, .backward = 2, .weight = 1, .message = 0}),
                       "durations must not be negative", Error);
  const Schedule hangs = lower(schedule_of_rows({"0F0,0B0,0F1,0B1", "1F0,1F1,1B0,1B1"}));
  CHECK_THROWS_WITH_AS(time_of(hangs, {}),
                       "rank 0 waits in 0B0 forever, so the schedule has no end: `ringside "
                       "prove pipeline` says "
                       "why",
                       Error);
}

}  // namespace
}  // namespace ringside::pipeline_parallel
