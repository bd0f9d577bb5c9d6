// Deadlocks: the circle is named, in every model of sends, and the verdict agrees with running.

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "parallel/pipeline/proof/deadlock.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

// The same with each receive posted only right before the computation that needs it, or a later
// message of its lane.
Schedule with_late_receives(Schedule lowered) {
  for (std::vector<Action>& actions : lowered.actions) {
    std::map<Lane, std::deque<Action>> left;  // in the order of the sends
    for (const Action& action : actions)
      if (is_receive(action.kind)) left[lane_of(lowered, action)].push_back(action);
    std::vector<Action> late;
    for (const Action& action : actions) {
      if (is_receive(action.kind)) continue;
      if (const auto needed = receive_before(lowered, action)) {
        std::deque<Action>& lane = left[lane_of(lowered, *needed)];
        while (std::find(lane.begin(), lane.end(), *needed) != lane.end()) {
          late.push_back(lane.front());
          lane.pop_front();
        }
      }
      late.push_back(action);
    }
    actions = late;
  }
  return lowered;
}

// Rank 2 runs backward of stage 5 before its last forward of stage 2, so two gradients are on their
// way to rank 1. Rank 1 needs the first only after its last forward, which needs that of rank 2.
TEST_CASE("late receives make a circle of three ranks, receives that are posted ahead do not") {
  const Schedule schedule = schedule_of_rows({"0F0,0F1,0F2,3F0,3F1,3F2,3B0,3B1,3B2,0B0,0B1,0B2",
                                              "1F0,1F1,1F2,4F0,4F1,4F2,4B0,4B1,4B2,1B0,1B1,1B2",
                                              "2F0,2F1,5F0,5B0,5F1,5B1,2F2,5F2,5B2,2B0,2B1,2B2"});
  CHECK(verify(schedule) == std::vector<std::string>{});
  const Schedule late = with_late_receives(lower(schedule));
  CHECK(find_deadlock(late, Sends::buffered) == "");
  CHECK(
      verify(late) ==
      std::vector<std::string>{
          "deadlock where nothing is buffered: rank 0 waits in 3F2 for 2SEND_F2 of rank 2; rank 2 "
          "waits in 5SEND_B1 for 4RECV_B0 of rank 1; rank 1 waits in 4F2 for 3SEND_F2 of rank 0"});
}

TEST_CASE("no schedule needs a buffer, because every receive is posted when its send begins") {
  for (const Generator& generator : all_generators())
    for (const int stages : {0, 2, 3})
      for (int ranks = 1; ranks <= 8; ++ranks) {
        if (!why_not(generator, ranks, 2 * ranks, stages).empty()) continue;
        CAPTURE(generator.name);
        CAPTURE(ranks);
        const Schedule lowered = lower(make_schedule(generator, ranks, 2 * ranks, stages));
        CHECK(find_deadlock(lowered, Sends::one_per_lane) == "");
      }
}

TEST_CASE("the circle of a long schedule on 16 ranks is named") {
  Schedule schedule = make_schedule("1f1b", 16, 64);
  // Rank 7 warms up with fewer forwards than rank 8, and then waits for it.
  swap_actions(schedule, 7, "7F3", "7B0");
  swap_actions(schedule, 7, "7F3", "7F8");
  const std::vector<std::string> found = verify(schedule);
  REQUIRE(found.size() == 1);
  CHECK(found[0] ==
        "deadlock where sends are buffered: rank 7 waits in 7B0 for 8SEND_B0 of rank 8; rank 8 "
        "waits in 8F3 for 7SEND_F3 of rank 7");
}

// An executor of its own: picks any rank that can move, at random. One message per lane is under
// way, until its receive is posted.
bool runs(const Schedule& lowered, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> next(lowered.ranks());
  std::set<Action> sent, posted;  // as their receivers name them
  std::map<Lane, Action> under_way;
  for (;;) {
    std::vector<int> movable;
    bool all_done = true;
    for (int rank = 0; rank < lowered.ranks(); ++rank) {
      if (next[rank] == lowered.actions[rank].size()) continue;
      all_done = false;
      const Action& action = lowered.actions[rank][next[rank]];
      bool can = true;
      if (const auto needed = receive_before(lowered, action))
        can = sent.contains(*needed) && posted.contains(*needed);
      if (is_send(action.kind))
        if (const auto before = under_way.find(lane_of(lowered, action)); before != under_way.end())
          can = posted.contains(before->second);
      if (can) movable.push_back(rank);
    }
    if (all_done) return true;
    if (movable.empty()) return false;
    const int rank = movable[random() % movable.size()];
    const Action& action = lowered.actions[rank][next[rank]++];
    if (is_receive(action.kind)) posted.insert(action);
    if (!is_send(action.kind)) continue;
    sent.insert(matching(action));
    under_way.insert_or_assign(lane_of(lowered, action), matching(action));
  }
}

TEST_CASE("the verdict agrees with running, for random changes of every schedule") {
  std::mt19937 random(7);
  int proved = 0, deadlocks = 0, late_deadlocks = 0;
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
    // Late receives can only add deadlocks; what is said of them agrees with running, too.
    const Schedule late = with_late_receives(lower(schedule));
    const std::vector<std::string> found_late = verify(late);
    if (found_late.empty() || found_late[0].starts_with("deadlock"))
      CHECK(runs(late, round) == found_late.empty());
    late_deadlocks += found.empty() && !found_late.empty() && found_late[0].starts_with("deadlock");
    (deadlock ? deadlocks : proved) += 1;
  }
  CHECK(proved > 100);
  CHECK(deadlocks > 100);
  CHECK(late_deadlocks > 0);
}

}  // namespace
}  // namespace ringside::pipeline_parallel
