#include "pipeline_parallel/execution/lanes.hpp"

#include <set>

#include "pipeline_parallel/generators/catalogue.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/pipeline_parallel/execution/recording_stages.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::pipeline_parallel;
using namespace ringside::tests;

TEST_CASE("each round of edges uses a rank once, and all edges are there") {
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const auto& rank_of :
         {loop_placement(ranks), loop_placement(ranks, 3), v_placement(ranks)}) {
      const Schedule schedule{.micro_batches = 1, .rank_of = rank_of, .actions = {}};
      std::set<std::pair<int, int>> seen;
      const auto rounds = rounds_of_edges(schedule);
      for (const auto& round : rounds) {
        std::set<int> busy;
        for (const auto& edge : round) {
          CHECK(seen.insert(edge).second);
          CHECK(busy.insert(edge.first).second);
          CHECK(busy.insert(edge.second).second);
        }
      }
      const bool loop = rank_of.size() == 3 * static_cast<std::size_t>(ranks) && ranks > 2;
      CHECK(seen.size() == static_cast<std::size_t>(loop ? 2 * ranks : 2 * (ranks - 1)));
      CHECK(rounds.size() <= 6);
    }
}

// Two ranks in a loop send to each other at the same time, in both directions.
TEST_CASE("a message that waits in one lane holds up no other lane and no collective") {
  const Schedule schedule = lower(make_schedule("interleaved", 2, 2));
  on_every_transport(2, [&](collectives::ProcessGroup& group) {
    Lanes lanes(group, schedule);
    const int other = 1 - group.rank();
    constexpr std::int64_t elements = 500'000;
    lanes.send(Tensor::full({elements}, group.rank()), other, "not received yet");
    std::vector<float> ones(10, 1);
    group.all_reduce(std::span(ones));
    require(ones[0] == 2, "the sum of two ones is {}", ones[0]);
    const Tensor received = Tensor::empty({elements});
    lanes.receive(received, other, "not received yet");
    require(received.values<float>().back() == static_cast<float>(other), "received {}",
            received.values<float>().back());
    lanes.wait_for_sends();
    require(lanes.bytes_sent(other) == 4 * elements, "{} bytes", lanes.bytes_sent(other));
  });
}

TEST_CASE("a tensor that was sent lives until it is received, and no longer") {
  const Schedule schedule = lower(make_schedule("1f1b", 2, 2));
  collectives::run_threads(2, [&](collectives::ProcessGroup& group) {
    Lanes lanes(group, schedule);
    if (group.rank() == 1) {
      group.barrier();
      const Tensor received = Tensor::empty({1000});
      lanes.receive(received, 0, "x");
      group.barrier();
      return;
    }
    const auto before = autograd::memory_use().current;
    lanes.send(Tensor::full({1000}, 1), 1, "x");
    lanes.release_received();
    require(autograd::memory_use().current == before + 4000, "the tensor was freed too early");
    group.barrier();
    group.barrier();
    while (autograd::memory_use().current != before) {  // the queue's thread notices soon
      lanes.release_received();
      std::this_thread::yield();
    }
  });
}

TEST_CASE("messages in another order than expected are named at both ends") {
  const Schedule schedule = lower(make_schedule("1f1b", 2, 2));
  const auto outcomes = run_tcp(2, [&](collectives::ProcessGroup& group) {
    Lanes lanes(group, schedule);
    const Tensor x = Tensor::zeros({8});
    if (group.rank() == 0) {
      lanes.send(x, 1, "activations of micro-batch 1 to stage 1");
      lanes.wait_for_sends();
      lanes.receive(x, 1, "never sent");
    } else {
      lanes.receive(x, 0, "activations of micro-batch 0 to stage 1");
    }
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
