#include "parallel/pipeline/execution/lanes.hpp"

#include <algorithm>
#include <set>

#include "parallel/pipeline/generators/catalogue.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/pipeline/execution/recording_stages.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::pipeline_parallel;
using namespace ringside::tests;

TEST_CASE("each round of lanes uses a rank once, and all lanes are there") {
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const auto& rank_of :
         {loop_placement(ranks), loop_placement(ranks, 3), v_placement(ranks)}) {
      const Schedule schedule{.micro_batches = 1, .rank_of = rank_of, .actions = {}};
      std::vector<Lane> seen;
      const auto rounds = rounds_of_lanes(schedule);
      for (const auto& round : rounds) {
        std::set<int> busy;
        for (const Lane& lane : round) {
          seen.push_back(lane);
          CHECK(busy.insert(lane.from).second);
          CHECK(busy.insert(lane.to).second);
        }
      }
      std::sort(seen.begin(), seen.end());
      CHECK((seen == lanes_of(schedule)));
      CHECK(rounds.size() <= 8);
    }
}

namespace {

constexpr Action send_0{Kind::send_activation, 0, 0}, receive_0{Kind::receive_activation, 1, 0};

}  // namespace

// Two ranks in a loop: rank 0 sends rank 1 activations and gradients. The activations wait.
TEST_CASE("a message that waits in one lane holds up no other lane and no collective") {
  const Schedule schedule = lower(make_schedule("interleaved", 2, 2));
  on_every_transport(2, [&](collectives::ProcessGroup& group) {
    Lanes lanes(group, schedule);
    constexpr std::int64_t elements = 500'000;
    const auto expect = [&](const Action& message, float number) {
      const Tensor received = Tensor::empty({elements});
      lanes.receive(message, received);
      require(received.values<float>().back() == number, "received {}",
              received.values<float>().back());
    };
    if (group.rank() == 0) {
      lanes.send(send_0, Tensor::full({elements}, 1));
      lanes.send({Kind::send_gradient, 2, 0}, Tensor::full({elements}, 2));
    } else {
      expect({Kind::receive_gradient, 1, 0}, 2);
    }
    std::vector<float> ones(10, 1);
    group.all_reduce(std::span(ones));
    require(ones[0] == 2, "the sum of two ones is {}", ones[0]);
    if (group.rank() == 1) expect(receive_0, 1);
    lanes.wait_for_sends();
    const auto bytes = lanes.bytes_sent(lane_of(schedule, send_0));
    require(bytes == (group.rank() == 0 ? 4 * elements : 0), "{} bytes", bytes);
  });
}

TEST_CASE("a tensor that was sent lives until it is received, and no longer") {
  const Schedule schedule = lower(make_schedule("1f1b", 2, 2));
  collectives::run_threads(2, [&](collectives::ProcessGroup& group) {
    Lanes lanes(group, schedule);
    const auto held = [] { return autograd::memory_use().current; };
    if (group.rank() == 1) {
      const Tensor received = Tensor::empty({1000});
      group.barrier();
      lanes.receive(receive_0, received);
      group.barrier();
      group.barrier();
      return;
    }
    const auto before = held();
    lanes.send(send_0, Tensor::full({1000}, 1));
    lanes.release_received();
    require(held() == before + 4000, "the tensor was freed too early");
    group.barrier();
    group.barrier();
    while (held() != before) {  // the queue's thread may need a moment
      lanes.release_received();
      std::this_thread::yield();
    }
    group.barrier();
  });
}

TEST_CASE("messages in another order than expected are named at both ends") {
  const Schedule schedule = lower(make_schedule("1f1b", 2, 2));
  const auto outcomes = run_tcp(2, [&](collectives::ProcessGroup& group) {
    Lanes lanes(group, schedule);
    const Tensor x = Tensor::zeros({8});
    if (group.rank() == 1) return lanes.receive(receive_0, x);
    lanes.send({Kind::send_activation, 0, 1}, x);
    lanes.wait_for_sends();
    lanes.receive({Kind::receive_gradient, 0, 1}, x);
  });
  CHECK(contains(outcomes[1], "the ranks disagree"));
  CHECK(contains(outcomes[1], "for activations of micro-batch 0 to stage 1"));
  CHECK(contains(outcomes[1], "for activations of micro-batch 1 to stage 1"));
  CHECK(outcomes[0] != "");
}

TEST_CASE("a schedule for another number of ranks is refused") {
  const Schedule schedule = lower(make_schedule("1f1b", 3, 2));
  CHECK_THROWS_WITH_AS(collectives::run_threads(
                           2, [&](collectives::ProcessGroup& group) { Lanes(group, schedule); }),
                       "the schedule is for 3 ranks, but the pipeline has 2", Error);
}
