// All-reduces on a machine that is not here: walked schedules and closed forms agree.
#include "planning/collective_time.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;
using namespace ringside::planning;
using collectives::Collective;
using collectives::CostParameters;

TEST_CASE("the closed forms are the walked schedules to 1e-12, for every size up to 64") {
  const CostParameters costs[] = {{.alpha = 5e-6, .beta = 2e-11, .gamma = 1e-12, .overhead = 5e-6},
                                  {.alpha = 1e-6, .overhead = 1e-6},
                                  {.beta = 1e-9},
                                  {.beta = 1e-9, .gamma = 3e-9}};
  for (const CostParameters& each : costs) {
    for (int ranks = 2; ranks <= 64; ++ranks) {
      for (const std::string& name : closed_form_names()) {
        CAPTURE(name);
        CAPTURE(ranks);
        const std::uint64_t bytes = static_cast<std::uint64_t>(ranks) * 1000;  // equal chunks
        const double walked =
            cost_of(collectives::find_algorithm(Collective::all_reduce, name), ranks, bytes, each)
                .seconds;
        const double closed =
            all_reduce_closed_form(name, ranks, static_cast<double>(bytes), each).value();
        CHECK(closed == doctest::Approx(walked).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("beyond 64 ranks the closed form takes over, without a jump") {
  const Machine h100 = find_machine("h100");
  const double at_64 = all_reduce_time("ring", 64, 1'000'000'000, h100).seconds,
               at_65 = all_reduce_time("ring", 65, 1'000'000'000, h100).seconds;
  CHECK(all_reduce_time("ring", 64, 1000, h100).walked);
  CHECK(!all_reduce_time("ring", 65, 1000, h100).walked);
  CHECK(at_65 > at_64);
  CHECK(at_65 < 1.01 * at_64);
  CHECK_THROWS_WITH(
      all_reduce_time("one_shot", 65, 1000, h100),
      "there is no closed form of the all-reduce 'one_shot', only of ring, "
      "halving_doubling, recursive_doubling: choose one of these, or at most 64 ranks");
  CHECK_THROWS_AS(all_reduce_time("rings", 4, 1000, h100), Error);
  CHECK_THROWS_AS(all_reduce_time("ring", 100'000, 1000, h100), Error);
}

TEST_CASE("8 x H100: a large ring all-reduce reaches 370 of 450 GB/s") {
  const CollectiveTime time = all_reduce_time("ring", 8, 16'000'000'000, find_machine("h100"));
  CHECK(time.busbw() / 1e9 == doctest::Approx(370).epsilon(0.05));
  Machine wires = find_machine("h100");
  wires.levels[0].efficiency = 1, wires.levels[0].latency = 0;
  CHECK(all_reduce_time("ring", 8, 16'000'000'000, wires).busbw() / 1e9 ==
        doctest::Approx(450).epsilon(1e-6));
  // Another network, another time.
  Machine narrow = find_machine("h100");
  narrow.levels[1].bytes_per_second /= 8;
  CHECK(all_reduce_time("ring", 16, 16'000'000'000, narrow).seconds > 5 * time.seconds);
}

TEST_CASE("NCCL over several servers: 370 GB/s on 16 GPUs, 300 to 350 on 1,984") {
  const Machine h100 = find_machine("h100");
  const auto busbw = [&](const char* algorithm, std::int64_t ranks, std::uint64_t bytes) {
    return all_reduce_time(algorithm, ranks, bytes, h100).busbw() / 1e9;
  };
  // Issue 290 of NVIDIA/nccl-tests.
  CHECK(busbw("ring", 16, 1'000'000'000) == doctest::Approx(370).epsilon(0.1));
  CHECK(busbw("ring", 16, 16'000'000'000) == doctest::Approx(370).epsilon(0.05));
  // Issue 283: 248 servers, 512 MiB. A ring would take 3,966 hops.
  CHECK(busbw("double_tree", 1984, 512 << 20) > 300);
  CHECK(busbw("double_tree", 1984, 512 << 20) < 350);
  CHECK(busbw("ring", 1984, 512 << 20) < 100);
  // A message over one card is not faster than that card.
  CHECK(busbw("halving_doubling", 16, 16'000'000'000) < 50);
  // Up and down 3 levels of servers, and 7 hops inside: by hand.
  CHECK(h100.tree_latency(1, 64, 1) == doctest::Approx(2 * (3 * 6e-6 + 7 * 3e-6)));
  CHECK(h100.tree_latency(1, 8, 8) == doctest::Approx(2 * 3 * 6e-6));
  // On one server it is the schedule of that name.
  CHECK(all_reduce_time("double_tree", 8, 1000, h100).seconds > 0);
}

TEST_CASE("few bytes want few steps, many bytes want few bytes") {
  const Machine h100 = find_machine("h100");
  const auto seconds = [&](const char* name, std::uint64_t bytes) {
    return all_reduce_time(name, 1024, bytes, h100).seconds;
  };
  CHECK(seconds("recursive_doubling", 1000) < seconds("halving_doubling", 1000));
  CHECK(seconds("halving_doubling", 1000) < seconds("ring", 1000));
  CHECK(seconds("halving_doubling", 1'000'000'000) < seconds("recursive_doubling", 1'000'000'000));
}
