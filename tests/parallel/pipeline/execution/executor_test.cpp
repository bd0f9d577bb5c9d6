// Every schedule, carried out over every transport with stages that compute nothing.
#include <fmt/format.h>

#include "parallel/pipeline/execution/executor.hpp"

#include <random>

#include "collectives/execution/traffic.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/pipeline/execution/recording_stages.hpp"
#include "tests/sample.hpp"

using namespace ringside;
using namespace ringside::pipeline_parallel;
using namespace ringside::tests;

namespace {

struct Case {
  std::string name;
  int micro_batches, stages_per_rank = 0;
};

// All schedules that serve so many ranks: fewer micro-batches than ranks, one, and many.
std::vector<Case> cases_for(int ranks) {
  std::vector<Case> cases;
  for (const Generator& generator : all_generators())
    for (const int micro_batches : {1, 2, 3, ranks - 1, ranks, 2 * ranks, 4 * ranks + 1})
      for (const int stages : {0, 3})
        if (micro_batches > 0 && why_not(generator, ranks, micro_batches, stages).empty())
          cases.push_back({std::string(generator.name), micro_batches, stages});
  return cases;
}

// Sleeps up to 200 us, other times for each rank, seed and action.
std::function<void(const Action&)> random_delays(int rank, int seed) {
  auto random = std::make_shared<std::mt19937>(1000 * seed + rank);
  return [random](const Action&) {
    if (const auto microseconds = (*random)() % 400; microseconds < 200)
      sleep_for(1e-6 * static_cast<double>(microseconds));
  };
}

void carry_out(collectives::ProcessGroup& group, const Schedule& schedule, int seed,
               std::int64_t elements = 1) {
  Messages messages(group);
  const int rank = group.rank();
  for (int step = 0; step < 2; ++step) {
    RecordingStages work(schedule, random_delays(rank, seed + step), elements);
    Executor executor(schedule, rank, messages, work);
    Trace trace;
    {
      const Trace::On on(trace);
      executor.run();
    }
    const auto expected = texts(computations(schedule.actions[rank]));
    require(texts(work.seen()) == expected, "rank {} ran {}, expected {}", rank,
            fmt::join(texts(work.seen()), " "), fmt::join(expected, " "));
    require(phases_of(trace) == expected, "the trace of rank {} shows {}, expected {}", rank,
            fmt::join(phases_of(trace), " "), fmt::join(expected, " "));
  }
}

}  // namespace

TEST_CASE("every schedule runs in its order with random delays") {
  for (const int ranks : {2, 3, 4, 6}) {
    int seed = 0;
    for (const Case& each : cases_for(ranks)) {
      CAPTURE(each.name);
      CAPTURE(each.micro_batches);
      const Schedule schedule =
          lower(make_schedule(each.name, ranks, each.micro_batches, each.stages_per_rank));
      ++seed;
      CHECK_NOTHROW(collectives::run_threads(ranks, [&](collectives::ProcessGroup& group) {
        carry_out(group, schedule, ranks * seed + group.rank());
      }));
    }
  }
}

TEST_CASE("every schedule runs over every transport, with messages longer than a socket's buffer") {
  constexpr std::int64_t elements = 300'000;
  testing::Sample sample;
  for (const int ranks : {2, 3, 4})
    for (const Generator& generator : all_generators()) {
      if (!sample.takes()) continue;
      CAPTURE(generator.name);
      const Schedule schedule = lower(make_schedule(generator, ranks, 2 * ranks));
      on_every_transport(ranks, [&](collectives::ProcessGroup& group) {
        carry_out(group, schedule, 7, elements);
      });
    }
}

TEST_CASE("a schedule from a file runs, whatever its order and placement") {
  // Two ranks, two stages each, placed 0 1 1 0; the second micro-batch overtakes in the middle.
  const Schedule schedule =
      lower(parse_csv("0F0,0F1,3F1,3B1,3F0,3B0,0B1,0B0\n"
                      "1F0,1F1,2F1,2F0,2B1,1B1,2B0,1B0\n",
                      "by hand"));
  on_every_transport(2, [&](collectives::ProcessGroup& group) { carry_out(group, schedule, 3); });
}

TEST_CASE("one rank runs all stages without a message") {
  const Schedule schedule = lower(make_schedule("gpipe", 1, 4));
  collectives::run_threads(
      1, [&](collectives::ProcessGroup& group) { carry_out(group, schedule, 0); });
}

TEST_CASE("a forward-only schedule brings every micro-batch through all stages") {
  for (const auto& rank_of : {loop_placement(3), loop_placement(2, 3), v_placement(3)}) {
    const Schedule schedule = forward_only(rank_of, 2);
    on_every_transport(schedule.ranks(),
                       [&](collectives::ProcessGroup& group) { carry_out(group, schedule, 1); });
  }
}

TEST_CASE("a schedule without messages is refused") {
  collectives::run_threads(2, [](collectives::ProcessGroup& group) {
    const Schedule schedule = make_schedule("1f1b", 2, 2);
    Messages messages(group);
    RecordingStages work(schedule);
    std::string text;
    try {
      Executor(schedule, group.rank(), messages, work);
    } catch (const Error& error) {
      text = error.what();
    }
    require(text ==
                "the executor needs the messages between ranks: call lower() on the schedule "
                "first",
            "{}", text);
  });
}

// Over this link a message leaves long after it was sent. Memory that were free too early would be
// that of a later tensor, with other numbers.
TEST_CASE("a tensor that was sent lives until it has left, and no longer") {
  GroupOptions options;
  options.link = collectives::parse_link("400Mbps,1ms");
  const Schedule schedule = lower(make_schedule("gpipe", 2, 6));
  for (const auto& run : {run_tcp, run_shm})
    for (const std::string& outcome : run(
             2,
             [&](collectives::ProcessGroup& group) {
               Messages messages(group);
               RecordingStages work(
                   schedule, [](const Action&) {}, 100'000);
               const auto held = [] { return autograd::memory_use().current; };
               group.barrier();
               const auto before = held();
               group.barrier();
               Executor(schedule, group.rank(), messages, work).run();
               group.barrier();
               const auto after = held();
               require(after == before, "{} bytes are held after the step, {} before", after,
                       before);
               const auto sent = messages.traffic().payload_bytes_sent;
               require(sent == 6 * 4 * 100'000, "{} bytes", sent);
             },
             options))
      CHECK(outcome == "");
}

TEST_CASE("a schedule for another number of ranks is refused") {
  const Schedule schedule = lower(make_schedule("1f1b", 3, 2));
  CHECK_THROWS_WITH_AS(collectives::run_threads(2,
                                                [&](collectives::ProcessGroup& group) {
                                                  Messages messages(group);
                                                  RecordingStages work(schedule);
                                                  Executor(schedule, group.rank(), messages, work);
                                                }),
                       "the schedule is for 3 ranks, but the pipeline has 2", Error);
}
