// A pipeline behind an emulated link, with stages that sleep, against the timing of that schedule.
//
// The bars: 5 % of the bubble, 15 % of the step. Each measurement is the median of three, and is
// repeated up to three times if it fails. If then sleeps have ended late, the machine is too busy
// and the test is skipped.
#include <algorithm>
#include <string>

#include "parallel/pipeline/proof/timing.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/pipeline/execution/sleeping_stages.hpp"

using namespace ringside;
using namespace ringside::tests;

namespace {

constexpr SleepDurations sleeps{.forward = 0.02, .input = 0.02, .weight = 0.02};
constexpr std::int64_t elements = 16'000;
// A message takes 8 ms on the wire and 3 ms on its way: half of a forward.
const collectives::Link link{.bytes_per_second = 8e6, .latency = Seconds(0.003)};

struct Step {
  double seconds = 0, bubble = 0;
  double late = 0;  // the part of a step by which sleeps end too late
};

Step timed(const Schedule& schedule, double message_bytes) {
  const double seconds =
      message_bytes > 0 ? link.latency.count() + message_bytes / link.bytes_per_second : 0;
  const auto timing =
      pipeline_parallel::time_of(schedule, {.forward = sleeps.forward,
                                            .backward = sleeps.input + sleeps.weight,
                                            .weight = sleeps.weight,
                                            .message = seconds});
  return {timing.step, timing.bubble(), 0};
}

// The median of three runs.
Step measured(const std::string& transport, const Schedule& schedule) {
  collectives::GroupOptions options;
  options.link = link;
  std::vector<double> seconds, bubbles, late;
  for (int run = 0; run < 3; ++run) {
    const auto times = sleep_through(schedule, sleeps, elements, [&](const Body& body) {
      if (transport == "threads") return collectives::run_threads(schedule.ranks(), body, options);
      for (const std::string& error : run_tcp(schedule.ranks(), body, options))
        REQUIRE(error == "");
    });
    seconds.push_back(times.front().whole), bubbles.push_back(bubble(times)),
        late.push_back(lateness(times));
  }
  return {median(seconds), median(bubbles), median(late)};
}

void agree(const char* transport, const char* name, int ranks, int micro_batches) {
  CAPTURE(transport);
  CAPTURE(name);
  CAPTURE(ranks);
  const Schedule schedule = lower(pipeline_parallel::make_schedule(name, ranks, micro_batches));
  const Step expected = timed(schedule, 4.0 * elements);
  // Without the messages the timing would miss the bar: they are what is tested.
  REQUIRE(expected.bubble > 1.05 * timed(schedule, 0).bubble);
  Step seen;
  const auto within = [&] {
    return std::abs(seen.bubble / expected.bubble - 1) <= 0.05 &&
           std::abs(seen.seconds / expected.seconds - 1) <= 0.15;
  };
  for (int attempt = 0; attempt < 3 && !within(); ++attempt) seen = measured(transport, schedule);
  MESSAGE(fmt::format(
      "{} of {} over {}: step {:.3f} s, timed {:.3f}; bubble {:.4f}, timed "
      "{:.4f}",
      name, ranks, transport, seen.seconds, expected.seconds, seen.bubble, expected.bubble));
  if (!within() && seen.late > 0.01) {
    MESSAGE("SKIPPED: this machine is busy: in most runs, sleeps take 1 % of the step too long");
    return;
  }
  CHECK(seen.bubble == doctest::Approx(expected.bubble).epsilon(0.05));
  CHECK(seen.seconds == doctest::Approx(expected.seconds).epsilon(0.15));
}

}  // namespace

TEST_CASE("a timed pipeline is the executed one on 2, 4 and 8 ranks behind a link") {
  for (const char* transport : {"threads", "tcp"})
    for (const int ranks : {2, 4, 8}) agree(transport, "1f1b", ranks, 8);
}

TEST_CASE("a timed pipeline is the executed one under every schedule") {
  for (const char* name : {"gpipe", "interleaved", "zb_h1", "zb_v"}) agree("tcp", name, 4, 8);
}
