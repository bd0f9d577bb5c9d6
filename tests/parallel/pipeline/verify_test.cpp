// verify() on wrong schedules: each gets its sentence.

#include <doctest/doctest.h>

#include "parallel/pipeline/proof/verify.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

using Findings = std::vector<std::string>;

TEST_CASE("an action of a stage, rank or micro-batch that does not exist") {
  Schedule schedule = make_schedule("1f1b", 2, 2);
  schedule.actions[0].push_back({Kind::forward, 1, 0});
  schedule.actions[0].push_back({Kind::forward, 5, 0});
  schedule.actions[1].push_back({Kind::backward, 1, 7});
  CHECK(verify(schedule) == Findings{"rank 0 has 1F0, but stage 1 is on rank 1",
                                     "rank 0 has 5F0, but the last stage is 1",
                                     "rank 1 has 1B7, but the last micro-batch is 1"});
  schedule = make_schedule("1f1b", 2, 2);
  schedule.actions.emplace_back();
  CHECK(verify(schedule) == Findings{"rank 2 has no stage"});
}

TEST_CASE("an empty schedule proves nothing, and a stage needs a rank") {
  CHECK(verify({}) ==
        Findings{"a schedule needs at least 1 rank, stage and micro-batch, not 0, 0 and 0"});
  Schedule schedule = make_schedule("gpipe", 2, 1);
  schedule.rank_of[1] = 2;
  CHECK(verify(schedule) == Findings{"stage 1 is on rank 2, but the last rank is 1"});
}

// A warm-up of p-1-r forwards without the limit m runs micro-batches that do not exist, and their
// receiver waits forever.
TEST_CASE("fewer micro-batches than ranks: a warm-up without limit") {
  Schedule schedule = make_schedule("1f1b", 4, 2);
  schedule.actions[0].insert(schedule.actions[0].begin() + 2, {Kind::forward, 0, 2});
  CHECK(verify(schedule) == Findings{"rank 0 has 0F2, but the last micro-batch is 1"});
}

TEST_CASE("an action is missing") {
  Schedule schedule = make_schedule("1f1b", 3, 4);
  erase_action(schedule, 1, "1F3");
  CHECK(verify(schedule) ==
        Findings{"1F3 is missing: rank 1 never runs forward of stage 1 for micro-batch 3"});
  schedule = make_schedule("1f1b", 3, 4);
  erase_action(schedule, 2, "2B1");
  CHECK(verify(schedule) ==
        Findings{"2B1 is missing: rank 2 never runs backward of stage 2 for micro-batch 1"});
  schedule = make_schedule("zb_h1", 3, 4);
  erase_action(schedule, 0, "0W2");
  erase_action(schedule, 1, "1I0");
  CHECK(verify(schedule) == Findings{"0W2 is missing: rank 0 has 0I2, which is half of backward",
                                     "1I0 is missing: rank 1 has 1W0, which is half of backward"});
}

TEST_CASE("an action occurs twice") {
  Schedule schedule = make_schedule("1f1b", 3, 4);
  repeat_action(schedule, 1, "1B2");
  CHECK(verify(schedule) == Findings{"rank 1 has 1B2 twice"});
  schedule = make_schedule("zb_h1", 2, 2);
  schedule.actions[0].push_back({Kind::backward, 0, 1});
  CHECK(verify(schedule) ==
        Findings{"rank 0 has 0B1 and also 0I1: backward is one action, or I and W"});
}

TEST_CASE("W before I, backward before forward, a stage before the stage on the same rank") {
  Schedule schedule = make_schedule("zb_h1", 2, 3);
  swap_actions(schedule, 0, "0I1", "0W1");
  CHECK(verify(schedule) ==
        Findings{"rank 0 runs 0W1 before 0I1, which leaves behind what W needs"});
  schedule = make_schedule("1f1b", 2, 3);
  swap_actions(schedule, 1, "1F1", "1B1");
  CHECK(verify(schedule) ==
        Findings{"rank 1 runs 1B1 before 1F1, whose activations backward needs"});
  schedule = make_schedule("zb_v", 2, 3);
  swap_actions(schedule, 1, "1F0", "2F0");
  CHECK(verify(schedule) == Findings{"rank 1 runs 2F0 before 1F0, whose output is its input"});
  schedule = make_schedule("zb_v", 2, 3);
  swap_actions(schedule, 1, "1I2", "2I2");
  CHECK(verify(schedule) == Findings{"rank 1 runs 1I2 before 2I2, whose gradient it needs"});
}

TEST_CASE("a message without its other end, too late, or too early") {
  const Schedule good = lower(make_schedule("1f1b", 2, 2));
  Schedule schedule = good;
  erase_action(schedule, 0, "0SEND_F1");
  CHECK(verify(schedule) == Findings{"rank 1 has 1RECV_F1, but rank 0 has no 0SEND_F1"});
  schedule = good;
  erase_action(schedule, 1, "1RECV_F1");
  CHECK(verify(schedule) == Findings{"rank 0 has 0SEND_F1, but rank 1 has no 1RECV_F1"});
  schedule = good;
  erase_action(schedule, 0, "0SEND_F1");
  erase_action(schedule, 1, "1RECV_F1");
  CHECK(verify(schedule) == Findings{"rank 1 runs 1F1 without 1RECV_F1"});
  schedule = good;
  swap_actions(schedule, 1, "1RECV_F1", "1F1");
  CHECK(verify(schedule) == Findings{"rank 1 runs 1F1 before 1RECV_F1"});
  schedule = good;
  swap_actions(schedule, 0, "0SEND_F0", "0F0");
  CHECK(verify(schedule) == Findings{"rank 0 has 0SEND_F0 before 0F0, which makes what is sent"});
}

TEST_CASE("a message that nobody needs") {
  Schedule schedule = lower(make_schedule("1f1b", 2, 1));
  schedule.actions[0].push_back({Kind::send_gradient, 0, 0});
  schedule.actions[1].push_back({Kind::receive_gradient, 1, 0});
  CHECK(verify(schedule) == Findings{"rank 0 has 0SEND_B0, but no stage comes before stage 0",
                                     "rank 1 has 1RECV_B0, but stage 1 is the last"});
  schedule = lower(make_schedule("zb_v", 2, 1));
  schedule.actions[1].push_back({Kind::send_activation, 1, 0});
  CHECK(verify(schedule) ==
        Findings{"rank 1 has 1SEND_F0, but stage 2 is on the same rank: no message is needed"});
}

TEST_CASE("the two ends of a lane disagree on the order") {
  Schedule schedule = lower(make_schedule("gpipe", 2, 3));
  swap_actions(schedule, 1, "1RECV_F0", "1RECV_F1");
  swap_actions(schedule, 1, "1F0", "1F1");
  CHECK(verify(schedule) == Findings{"rank 0 sends 0SEND_F0 where rank 1 receives 1RECV_F1: both "
                                     "ends of a lane must have the same order"});
}

TEST_CASE("gradients are reduced too early, twice, or never") {
  const Schedule good = lower(make_schedule("zb_h1", 2, 3));
  Schedule schedule = good;
  swap_actions(schedule, 1, "1REDUCE_GRAD", "1W2");
  CHECK(verify(schedule) ==
        Findings{"rank 1 has 1REDUCE_GRAD before 1W2, which adds to these gradients"});
  schedule = good;
  repeat_action(schedule, 1, "1REDUCE_GRAD");
  CHECK(verify(schedule) == Findings{"rank 1 has 1REDUCE_GRAD twice"});
  schedule = good;
  erase_action(schedule, 0, "0REDUCE_GRAD");
  CHECK(verify(schedule) == Findings{"0REDUCE_GRAD is missing: rank 0 never reduces the gradients "
                                     "of stage 0"});
}

TEST_CASE("a warm-up that is too short is a circle, named by rank") {
  // Rank 0 waits for its first gradient after one forward. Rank 1 needs more before it sends one.
  const Schedule schedule =
      schedule_of_rows({"0F0,0B0,0F1,0B1,0F2,0B2",  //
                        "1F0,1F1,1B0,1F2,1B1,1B2", "2F0,2B0,2F1,2B1,2F2,2B2"});
  CHECK(verify(schedule) ==
        Findings{"deadlock where sends are buffered: rank 0 waits in 0B0 for 1SEND_B0 of rank "
                 "1; rank 1 waits in 1F1 for 0SEND_F1 of rank 0"});
}

// Both ranks post a receive before the send that the other one waits for.
TEST_CASE("a receive that is posted holds up nothing") {
  const Schedule schedule =
      schedule_of_rows({"0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1,0REDUCE_GRAD",
                        "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD"});
  CHECK(verify(schedule) == Findings{});
}

TEST_CASE("activations in flight: forward keeps, B and W free, I does not") {
  CHECK(most_in_flight(schedule_of_rows({"0F0,0F1,0B0,0F2,0B1,0B2"})) == std::vector<int>{2});
  CHECK(most_in_flight(schedule_of_rows({"0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2"})) ==
        std::vector<int>{3});
  CHECK(most_in_flight(schedule_of_rows({"0F0,0I0,0W0,0F1,0I1,0W1"})) == std::vector<int>{1});
}

}  // namespace
}  // namespace ringside::pipeline_parallel
