// The proof over every schedule with at most 16 ranks, 64 micro-batches and 4 stages per rank (2 of
// looped_bfs, which takes any number of micro-batches): a whole step, no deadlock, bubble and
// activations as the literature says. A test for each schedule.

#include <cmath>

#include <doctest/doctest.h>

#include "parallel/pipeline/proof/formulas.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

constexpr int most_ranks = 16, most_micro_batches = 64, most_stages = 4;

// What was compared, so that a formula that never holds fails the test.
struct Compared {
  int cases = 0, bubbles = 0, held = 0;
};

void prove_case(const Setting& setting, Compared& compared) {
  CAPTURE(setting.ranks);
  CAPTURE(setting.micro_batches);
  CAPTURE(setting.stages_per_rank);
  const Schedule schedule = make_schedule(std::string(setting.schedule), setting.ranks,
                                          setting.micro_batches, setting.stages_per_rank);
  const std::vector<std::string> found = verify(schedule);
  REQUIRE_MESSAGE(found.empty(), (found.empty() ? "" : found[0]));
  ++compared.cases;
  const Schedule lowered = lower(schedule);
  for (const Durations& durations : {Durations{1, 2, 1, 0}, Durations{2, 5, 2, 0},
                                     Durations{3, 5, 1, 0}, Durations{0.25, 0.5, 0.25, 0}}) {
    const auto bubble = bubble_by_formula(setting, durations);
    if (!bubble) continue;
    const Timing timing = time_of(lowered, durations);
    if (std::abs(timing.bubble() - *bubble) > 1e-9) {
      CAPTURE(durations.forward);
      CAPTURE(durations.backward);
      CAPTURE(durations.weight);
      CHECK(timing.bubble() == *bubble);
    }
    ++compared.bubbles;
  }
  const std::vector<int> most = most_in_flight(schedule);
  for (int rank = 0; rank < setting.ranks; ++rank) {
    const auto held = in_flight_by_formula(setting, rank);
    if (!held) continue;
    CHECK(most[rank] == *held);
    ++compared.held;
  }
}

Compared prove_every(const std::string& name, int stages = most_stages) {
  Compared compared;
  for (const Generator& generator : all_generators()) {
    if (generator.name != name) continue;
    for (int p = 1; p <= most_ranks; ++p) {
      for (int m = 1; m <= most_micro_batches; ++m) {
        for (int v = 1; v <= stages; ++v) {
          if (why_not(generator, p, m, v).empty()) prove_case({name, p, m, v}, compared);
        }
      }
    }
  }
  return compared;
}

TEST_CASE("gpipe: every schedule is proved") {
  const Compared compared = prove_every("gpipe");
  CHECK(compared.cases == 1024);
  CHECK(compared.bubbles == 4 * 1024);
}

TEST_CASE("1f1b: every schedule is proved") {
  const Compared compared = prove_every("1f1b");
  CHECK(compared.cases == 1024);
  CHECK(compared.bubbles == 4 * 1024);
}

TEST_CASE("interleaved: every schedule is proved") {
  const Compared compared = prove_every("interleaved");
  CHECK(compared.cases == 844);  // four for each multiple of p up to 64
  CHECK(compared.bubbles == 4 * 844);
}

TEST_CASE("zb_h1: every schedule is proved") {
  const Compared compared = prove_every("zb_h1");
  CHECK(compared.cases == 1024);
  CHECK(compared.bubbles == 4 * 904);  // with at least p micro-batches
  CHECK(compared.held == 64 * 136);
}

TEST_CASE("zb_v: every schedule is proved") {
  const Compared compared = prove_every("zb_v");
  CHECK(compared.cases == 1024);
  CHECK(compared.bubbles == 2 * 784);  // F = I = W, and at least 2p-1 micro-batches
}

TEST_CASE("looped_bfs: every schedule is proved") {
  const Compared compared = prove_every("looped_bfs", 2);
  CHECK(compared.cases == 2 * 1024);
  CHECK(compared.bubbles == 8 * 904);  // with at least p micro-batches
}

TEST_CASE("interleaved_zb: every schedule is proved") {
  const Compared compared = prove_every("interleaved_zb");
  CHECK(compared.cases == 844);
  CHECK(compared.bubbles == 4 * 844);
}

TEST_CASE("dualpipe_v: every schedule is proved") {
  const Compared compared = prove_every("dualpipe_v");
  CHECK(compared.cases == 1024);
  CHECK(compared.bubbles == 2 * 768);  // F = I = W, and at least 2p micro-batches
}

TEST_CASE("zb_v: no rank waits between its first and its last computation where F = I = W") {
  for (int p = 1; p <= most_ranks; ++p) {
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1, 64}) {
      CAPTURE(p);
      CAPTURE(m);
      const Timing timing = time_of(lower(make_schedule("zb_v", p, m)), {1, 2, 1, 0});
      for (const double waiting : timing.waiting) CHECK(waiting == 0);
      CHECK(timing.step == 6 * m + p - 1);
    }
  }
}

// (v+1)p - 1 on rank 0 needs enough micro-batches to fill the warm-up: two rounds.
TEST_CASE("interleaved: rank 0 holds (v+1)p - 1 activations, from 2p micro-batches on") {
  for (int p = 2; p <= 8; ++p) {
    for (int v = 2; v <= 4; ++v) {
      CHECK(most_in_flight(make_schedule("interleaved", p, 2 * p, v))[0] == (v + 1) * p - 1);
      CHECK(most_in_flight(make_schedule("interleaved", p, p, v))[0] == v * p);
    }
  }
}

}  // namespace
}  // namespace ringside::pipeline_parallel
