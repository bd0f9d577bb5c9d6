// Lowering: where messages and reductions are added, and over which lanes they go.

#include <map>
#include <set>

#include <doctest/doctest.h>

#include "parallel/pipeline/proof/verify.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

TEST_CASE("messages stand around the computations, reductions after the last backward") {
  const Schedule lowered = lower(make_schedule("1f1b", 2, 2));
  CHECK(row_of(lowered, 0) == "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD");
  CHECK(row_of(lowered, 1) == "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD");
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

TEST_CASE("a receive stands before the computation that needs it, in the order of its lane") {
  for (const Generator& generator : all_generators()) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      CAPTURE(generator.name);
      CAPTURE(ranks);
      const Schedule lowered = lower(make_schedule(generator, ranks, 3 * ranks));
      std::map<Lane, std::vector<Action>> sent, received;
      for (const std::vector<Action>& actions : lowered.actions) {
        std::set<Action> posted;
        for (const Action& action : actions) {
          if (is_send(action.kind)) sent[lane_of(lowered, action)].push_back(matching(action));
          if (is_receive(action.kind)) {
            received[lane_of(lowered, action)].push_back(action);
            posted.insert(action);
          }
          if (const auto needed = receive_before(lowered, action)) CHECK(posted.contains(*needed));
        }
      }
      CHECK((sent == received));
    }
  }
}

// GPipe on 2 ranks: rank 1 posts a receive for each micro-batch when rank 0 sends it, not all at
// the start, where each would take memory.
TEST_CASE("a receive is posted no earlier than its send") {
  const Schedule lowered = lower(make_schedule("gpipe", 2, 4));
  CHECK(row_of(lowered, 1).starts_with("1RECV_F0,1F0,1RECV_F1,1F1,1RECV_F2,1F2,1RECV_F3,1F3,"));
}

TEST_CASE("ranks that wait in a circle get all their messages, and a sentence") {
  const Schedule schedule = schedule_of_rows({"0F0,0B0,0F1,0B1", "1F0,1F1,1B0,1B1"});
  const Schedule lowered = lower(schedule);
  CHECK(row_of(lowered, 0) == "0F0,0SEND_F0,0RECV_B0,0RECV_B1,0B0,0F1,0SEND_F1,0B1,0REDUCE_GRAD");
  CHECK(verify(schedule) ==
        std::vector<std::string>{
            "deadlock where sends are buffered: rank 0 waits in 0B0 for 1SEND_B0 of rank 1; rank 1 "
            "waits in 1F1 for 0SEND_F1 of rank 0"});
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
  // Stage 1 on rank 1 sends its output to stage 2 on rank 0, and gets the gradient back.
  CHECK(lane_of(schedule, {Kind::send_activation, 1, 0}) == Lane{1, 0, false});
  CHECK(lane_of(schedule, {Kind::receive_activation, 2, 0}) == Lane{1, 0, false});
  CHECK(lane_of(schedule, {Kind::send_gradient, 2, 0}) == Lane{0, 1, true});
  CHECK(lane_of(schedule, {Kind::receive_gradient, 1, 0}) == Lane{0, 1, true});
}

}  // namespace
}  // namespace ringside::pipeline_parallel
