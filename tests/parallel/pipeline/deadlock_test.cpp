// Deadlocks: the circle is named, in every model of sends, and the verdict agrees with running.

#include <map>
#include <random>

#include <doctest/doctest.h>

#include "parallel/pipeline/proof/deadlock.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

// On two ranks the stage before and the stage behind lie on the same rank, so sends can meet.
TEST_CASE("on two ranks blocking sends would meet at the wrap-around, asynchronous ones do not") {
  const Schedule lowered = lower(make_schedule("interleaved", 2, 4, 2));
  CHECK(find_deadlock(lowered, Sends::buffered) == "");
  CHECK(find_deadlock(lowered, Sends::one_per_lane) == "");
  CHECK(find_deadlock(lowered, Sends::blocking) ==
        "deadlock where sends block: rank 0 waits in 0SEND_F1 for 1RECV_F1 of rank 1; rank 1 waits "
        "in 1SEND_F0 for 2RECV_F0 of rank 0");
}

TEST_CASE("1F1B with blocking sends is a circle of sends, and GPipe is not") {
  CHECK(find_deadlock(lower(make_schedule("1f1b", 2, 3)), Sends::blocking) ==
        "deadlock where sends block: rank 0 waits in 0SEND_F1 for 1RECV_F1 of rank 1; rank 1 waits "
        "in 1SEND_B0 for 0RECV_B0 of rank 0");
  CHECK(find_deadlock(lower(make_schedule("gpipe", 4, 8)), Sends::blocking) == "");
}

// Rank 2 runs backward of stage 5 before its last forward of stage 2, so two gradients are on their
// way to rank 1. Rank 1 takes the first only after its last forward, which needs that of rank 2.
TEST_CASE("a circle of three ranks that exists only where nothing is buffered") {
  const Schedule schedule = schedule_of_rows({"0F0,0F1,0F2,3F0,3F1,3F2,3B0,3B1,3B2,0B0,0B1,0B2",
                                              "1F0,1F1,1F2,4F0,4F1,4F2,4B0,4B1,4B2,1B0,1B1,1B2",
                                              "2F0,2F1,5F0,5B0,5F1,5B1,2F2,5F2,5B2,2B0,2B1,2B2"});
  CHECK(find_deadlock(lower(schedule), Sends::buffered) == "");
  CHECK(verify(schedule) ==
        std::vector<std::string>{
            "deadlock where nothing is buffered: rank 0 waits in 3RECV_F2 for 2SEND_F2 of rank 2; "
            "rank 2 waits in 5SEND_B1 for 4RECV_B0 of rank 1; rank 1 waits in 4RECV_F2 for "
            "3SEND_F2 of rank 0"});
}

TEST_CASE("the circle of a long schedule on 16 ranks is named") {
  Schedule schedule = make_schedule("1f1b", 16, 64);
  // Rank 7 warms up with fewer forwards than rank 8, and then waits for it.
  swap_actions(schedule, 7, "7F3", "7B0");
  swap_actions(schedule, 7, "7F3", "7F8");
  const std::vector<std::string> found = verify(schedule);
  REQUIRE(found.size() == 1);
  CHECK(found[0] ==
        "deadlock where sends are buffered: rank 7 waits in 7RECV_B0 for 8SEND_B0 of rank 8; rank "
        "8 waits in 8RECV_F4 for 7SEND_F4 of rank 7");
}

// An executor of its own: picks any rank that can move, at random. One message per lane is under
// way. `shared`: activations and gradients between two ranks use the same lane.
bool runs(const Schedule& lowered, unsigned seed, bool shared = false) {
  std::mt19937 random(seed);
  std::vector<std::size_t> next(lowered.ranks());
  std::map<Lane, std::vector<Action>> under_way;
  const auto queue_of = [&](const Action& message) -> std::vector<Action>& {
    Lane lane = lane_of(lowered, message);
    if (shared) lane.gradients = false;
    return under_way[lane];
  };
  for (;;) {
    std::vector<int> movable;
    bool all_done = true;
    for (int rank = 0; rank < lowered.ranks(); ++rank) {
      if (next[rank] == lowered.actions[rank].size()) continue;
      all_done = false;
      const Action& action = lowered.actions[rank][next[rank]];
      bool can = true;
      if (is_receive(action.kind)) {
        const std::vector<Action>& queue = queue_of(action);
        can = !queue.empty() && queue.front() == matching(action);
      }
      if (is_send(action.kind)) can = queue_of(action).empty();
      if (can) movable.push_back(rank);
    }
    if (all_done) return true;
    if (movable.empty()) return false;
    const int rank = movable[random() % movable.size()];
    const Action& action = lowered.actions[rank][next[rank]++];
    if (is_send(action.kind)) queue_of(action).push_back(action);
    if (is_receive(action.kind)) queue_of(action).clear();
  }
}

TEST_CASE("on two ranks activations and gradients must not share a lane") {
  for (const std::string name : {"interleaved", "zb_v"}) {
    CAPTURE(name);
    const Schedule lowered = lower(make_schedule(name, 2, 4));
    for (unsigned seed = 0; seed < 20; ++seed) {
      CHECK(runs(lowered, seed));
      CHECK_FALSE(runs(lowered, seed, true));
    }
  }
}

TEST_CASE("the verdict agrees with running, for random changes of every schedule") {
  std::mt19937 random(7);
  int proved = 0, deadlocks = 0;
  for (int round = 0; round < 3000; ++round) {
    const Generator& generator = all_generators()[round % all_generators().size()];
    const int ranks = 2 + static_cast<int>(random() % 4);
    Schedule schedule = make_schedule(generator, ranks, ranks * (1 + random() % 3));
    for (unsigned change = 0; change <= random() % 3; ++change) {
      auto& actions = schedule.actions[random() % ranks];
      const std::size_t from = random() % actions.size(), to = random() % actions.size();
      const Action moved = actions[from];
      actions.erase(actions.begin() + from);
      actions.insert(actions.begin() + to, moved);
    }
    const std::vector<std::string> found = verify(schedule);
    const bool deadlock = !found.empty() && found[0].starts_with("deadlock");
    if (!found.empty() && !deadlock) continue;  // wrong already without another rank
    CAPTURE(csv_of(schedule));
    CHECK(runs(lower(schedule), round) == found.empty());
    (deadlock ? deadlocks : proved) += 1;
  }
  CHECK(proved > 100);
  CHECK(deadlocks > 100);
}

}  // namespace
}  // namespace ringside::pipeline_parallel
