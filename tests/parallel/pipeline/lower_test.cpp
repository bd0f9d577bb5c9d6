// Lowering: where messages and reductions are added, and over which lanes they go.

#include <doctest/doctest.h>

#include "parallel/pipeline/proof/verify.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

TEST_CASE("messages stand around the computations, reductions after the last backward") {
  const Schedule lowered = lower(make_schedule("1f1b", 2, 2));
  CHECK(row_of(lowered, 0) == "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD");
  CHECK(row_of(lowered, 1) == "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD");
}

TEST_CASE("W sends nothing, and the gradient leaves before W begins") {
  const Schedule lowered = lower(make_schedule("zb_h1", 2, 1));
  CHECK(row_of(lowered, 0) == "0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD");
  CHECK(row_of(lowered, 1) == "1RECV_F0,1F0,1I0,1SEND_B0,1W0,1REDUCE_GRAD");
}

TEST_CASE("two stages on one rank need no message: the turn of the V") {
  const Schedule lowered = lower(make_schedule("zb_v", 2, 1));
  CHECK(row_of(lowered, 1) ==
        "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,2W0,2REDUCE_GRAD,1I0,1SEND_B0,1W0,1REDUCE_GRAD");
  CHECK_FALSE(has_messages(lower(make_schedule("zb_v", 1, 3))));
}

// A receive posted early would hold its rank up before work that it could do.
TEST_CASE("every receive stands right before the computation that needs it") {
  for (const Generator& generator : all_generators()) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      CAPTURE(generator.name);
      CAPTURE(ranks);
      const Schedule lowered = lower(make_schedule(generator, ranks, 3 * ranks));
      for (const std::vector<Action>& actions : lowered.actions) {
        for (std::size_t i = 0; i < actions.size(); ++i) {
          if (!is_receive(actions[i].kind)) continue;
          REQUIRE(i + 1 < actions.size());
          CHECK(is_computation(actions[i + 1].kind));
          CHECK(actions[i + 1].stage == actions[i].stage);
          CHECK(actions[i + 1].micro_batch == actions[i].micro_batch);
        }
      }
    }
  }
}

TEST_CASE("what a lane carries first is received first, even if it is needed later") {
  const Schedule schedule = schedule_of_rows({"0F0,0F1,0B0,0B1", "1F1,1F0,1B0,1B1"});
  CHECK(row_of(lower(schedule), 1) ==
        "1RECV_F0,1RECV_F1,1F1,1F0,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD");
  CHECK(verify(schedule).empty());
}

TEST_CASE("a schedule that lists its own messages keeps them, and gets the reductions") {
  Schedule schedule = lower(make_schedule("1f1b", 3, 4));
  for (int rank = 0; rank < 3; ++rank)
    erase_action(schedule, rank, std::to_string(rank) + "REDUCE_GRAD");
  const Schedule lowered = lower(schedule);
  CHECK(has_reductions(lowered));
  CHECK(verify(lowered).empty());
  CHECK(lower(lowered) == lowered);
}

TEST_CASE("activations and gradients between two ranks have lanes of their own") {
  const Schedule schedule = make_schedule("interleaved", 2, 2, 2);
  CHECK(lanes_of(schedule) ==
        std::vector<Lane>{{0, 1, false}, {0, 1, true}, {1, 0, false}, {1, 0, true}});
  // Stage 1 on rank 1 sends its output to stage 2 on rank 0, and gets the gradient back.
  CHECK(lane_of(schedule, {Kind::send_activation, 1, 0}) == Lane{1, 0, false});
  CHECK(lane_of(schedule, {Kind::receive_activation, 2, 0}) == Lane{1, 0, false});
  CHECK(lane_of(schedule, {Kind::send_gradient, 2, 0}) == Lane{0, 1, true});
  CHECK(lane_of(schedule, {Kind::receive_gradient, 1, 0}) == Lane{0, 1, true});
  CHECK(lanes_of(make_schedule("1f1b", 3, 3)) ==
        std::vector<Lane>{{0, 1, false}, {1, 0, true}, {1, 2, false}, {2, 1, true}});
  CHECK(lanes_of(make_schedule("zb_v", 2, 3)) ==
        std::vector<Lane>{{0, 1, false}, {0, 1, true}, {1, 0, false}, {1, 0, true}});
  CHECK(lanes_of(make_schedule("zb_v", 1, 3)).empty());
}

}  // namespace
}  // namespace ringside::pipeline_parallel
