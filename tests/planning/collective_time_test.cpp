// Collectives on a machine that is not here: walked schedules and closed forms agree.
#include "planning/collective_time.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "collectives/algorithms/hierarchical/all_to_all.hpp"
#include "collectives/algorithms/hierarchical/hierarchical.hpp"
#include "collectives/algorithms/ring/ring.hpp"

using namespace ringside;
using namespace ringside::planning;
using collectives::Collective;
using collectives::CostParameters;

namespace {

CollectiveTime all_reduce_of(const char* algorithm, std::int64_t ranks, std::uint64_t bytes,
                             const Machine& machine) {
  return collective_time(Collective::all_reduce, algorithm, ranks, bytes, machine);
}

}  // namespace

TEST_CASE("the closed forms are the walked schedules to 1e-12, for every size up to 64") {
  const CostParameters costs[] = {{.alpha = 5e-6, .beta = 2e-11, .gamma = 1e-12, .overhead = 5e-6},
                                  {.alpha = 1e-6, .overhead = 1e-6},
                                  {.beta = 1e-9},
                                  {.beta = 1e-9, .gamma = 3e-9}};
  for (const CostParameters& each : costs)
    for (const std::string& named : simulated_collectives()) {
      const Collective collective = collectives::collective_named(named);
      for (const std::string& name : closed_form_names(collective)) {
        if (name == "chain") continue;
        CAPTURE(named);
        CAPTURE(name);
        const auto& algorithm = collectives::find_algorithm(collective, name);
        for (int ranks = 2; ranks <= 64; ++ranks) {
          CAPTURE(ranks);
          const std::uint64_t bytes = static_cast<std::uint64_t>(ranks) * 1000;  // equal chunks
          const double walked = cost_of(algorithm, ranks, bytes, each).seconds;
          const double closed =
              closed_form(collective, name, ranks, static_cast<double>(bytes), each).value();
          CHECK(closed == doctest::Approx(walked).epsilon(1e-12));
        }
      }
    }
}

TEST_CASE("a chain in small slices comes near its closed form") {
  const auto& chain = collectives::find_algorithm(Collective::broadcast, "chain");
  CostParameters costs{.alpha = 1e-6, .beta = 1e-9};
  const CostParameters whole = costs;
  costs.slice_bytes = 1000;
  for (const int ranks : {2, 3, 8, 16}) {
    CAPTURE(ranks);
    const double walked = cost_of(chain, ranks, 10'000'000, costs).seconds,
                 closed = closed_form(Collective::broadcast, "chain", ranks, 1e7, whole).value();
    CHECK(closed == doctest::Approx(walked).epsilon(0.01));
  }
}

TEST_CASE("collectives on H100: an all-reduce is a reduce-scatter and an all-gather") {
  const Machine h100 = find_machine("h100");
  const std::uint64_t large = 16'000'000'000;
  for (const std::int64_t ranks : {8, 16, 64, 128, 1024}) {
    CAPTURE(ranks);
    const auto time = [&](Collective collective, const char* algorithm) {
      return collective_time(collective, algorithm, ranks, large, h100);
    };
    const CollectiveTime all = time(Collective::all_reduce, "ring"),
                         gather = time(Collective::all_gather, "ring"),
                         scatter = time(Collective::reduce_scatter, "ring"),
                         exchange = time(Collective::all_to_all, "pairwise"),
                         chain = time(Collective::broadcast, "chain"),
                         binomial = time(Collective::broadcast, "binomial");
    CHECK(gather.seconds + scatter.seconds == doctest::Approx(all.seconds).epsilon(1e-9));
    // Each is as fast as the link: its bus bandwidth is that of the all-reduce.
    CHECK(gather.busbw() == doctest::Approx(all.busbw()).epsilon(1e-9));
    CHECK(chain.busbw() == doctest::Approx(all.busbw()).epsilon(0.02));
    CHECK(binomial.seconds > chain.seconds);
    CHECK(!chain.walked);
    CHECK(gather.walked == (ranks <= 64));
    // Between servers each rank has one card; within one, NVLink. A rank rests for one round.
    const double rate = ranks == 8 ? 450e9 * 0.82 : 50e9 * 0.9;
    CHECK(exchange.algbw() == doctest::Approx(rate).epsilon(0.02));
    CHECK(exchange.busbw() == doctest::Approx(exchange.algbw() * (ranks - 1.0) / ranks));
  }
  // Few bytes want few rounds.
  CHECK(collective_time(Collective::all_gather, "pat", 1024, 1000, h100).seconds <
        collective_time(Collective::all_gather, "ring", 1024, 1000, h100).seconds / 50);
  CHECK_THROWS_WITH(collective_time(Collective::all_gather, "bruck", 65, 1000, h100),
                    "there is no closed form of the all_gather 'bruck', only of ring, pat: choose "
                    "one of these, or at most 64 ranks");
  CHECK_THROWS_AS(collective_time(Collective::broadcast, "in_network", 8, 1000, h100), Error);
}

TEST_CASE("beyond 64 ranks the closed form takes over, without a jump") {
  const Machine h100 = find_machine("h100");
  const double at_64 = all_reduce_of("ring", 64, 1'000'000'000, h100).seconds,
               at_65 = all_reduce_of("ring", 65, 1'000'000'000, h100).seconds;
  CHECK(all_reduce_of("ring", 64, 1000, h100).walked);
  CHECK(!all_reduce_of("ring", 65, 1000, h100).walked);
  CHECK(at_65 > at_64);
  CHECK(at_65 < 1.01 * at_64);
  CHECK_THROWS_WITH(
      all_reduce_of("one_shot", 65, 1000, h100),
      "there is no closed form of the all_reduce 'one_shot', only of ring, "
      "halving_doubling, recursive_doubling: choose one of these, or at most 64 ranks");
  CHECK_THROWS_AS(all_reduce_of("rings", 4, 1000, h100), Error);
  CHECK_THROWS_AS(all_reduce_of("ring", 100'000, 1000, h100), Error);
}

TEST_CASE("8 x H100: a large ring all-reduce reaches 370 of 450 GB/s") {
  const CollectiveTime time = all_reduce_of("ring", 8, 16'000'000'000, find_machine("h100"));
  CHECK(time.busbw() / 1e9 == doctest::Approx(370).epsilon(0.05));
  Machine wires = find_machine("h100");
  wires.levels[0].efficiency = 1, wires.levels[0].latency = 0;
  CHECK(all_reduce_of("ring", 8, 16'000'000'000, wires).busbw() / 1e9 ==
        doctest::Approx(450).epsilon(1e-6));
  // Another network, another time.
  Machine narrow = find_machine("h100");
  narrow.levels[1].bytes_per_second /= 8;
  CHECK(all_reduce_of("ring", 16, 16'000'000'000, narrow).seconds > 5 * time.seconds);
}

TEST_CASE("NCCL over several servers: 370 GB/s on 16 GPUs, 300 to 350 on 1,984") {
  const Machine h100 = find_machine("h100");
  const auto busbw = [&](const char* algorithm, std::int64_t ranks, std::uint64_t bytes) {
    return all_reduce_of(algorithm, ranks, bytes, h100).busbw() / 1e9;
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
  CHECK(all_reduce_of("double_tree", 8, 1000, h100).seconds > 0);
}

TEST_CASE("hierarchical: inside the servers over NVLink, and between them over all cards") {
  const Machine h100 = find_machine("h100");
  for (const std::int64_t servers : {2, 3, 8, 125}) {
    CAPTURE(servers);
    const double k = 8, s = static_cast<double>(servers), bytes = 8e8 * s;
    const auto seconds = [&](Collective collective) {
      return collective_time(collective, "hierarchical", 8 * servers,
                             static_cast<std::uint64_t>(bytes), h100)
          .seconds;
    };
    const double nvlink = 450e9 * 0.82, card = 50e9 * 0.9;
    // Half of a ring inside, a ring of one rank of each server with an eighth of the buffer, and
    // the other half.
    CHECK(seconds(Collective::all_reduce) ==
          doctest::Approx(2 * (k - 1) * (3e-6 + bytes / k / nvlink) +
                          2 * (s - 1) * (6e-6 + bytes / k / s / card)));
    // A pair needs one round.
    const double rounds = servers == 2 ? 1 : s;
    CHECK(seconds(Collective::all_to_all) ==
          doctest::Approx(k * (3e-6 + bytes / k / nvlink) + rounds * (6e-6 + bytes / s / card)));
  }
  // Where both levels are alike, they are the walked schedules.
  Machine alike = h100;
  alike.levels[0].bytes_per_second = alike.levels[1].bytes_per_second;
  alike.levels[0].efficiency = alike.levels[1].efficiency;
  alike.levels[0].latency = alike.levels[1].latency;
  using namespace collectives;
  const Algorithm reduces{Collective::all_reduce, "of 8", [](int size, int rank, int) {
                            return hierarchical_all_reduce_of(size, rank, 8, ring_reduce_scatter,
                                                              ring_all_reduce, ring_all_gather);
                          }};
  const Algorithm exchanges{Collective::all_to_all, "of 8", [](int size, int rank, int) {
                              return hierarchical_all_to_all_of(size, rank, 8);
                            }};
  for (const int ranks : {16, 24, 64})
    for (const Algorithm* algorithm : {&reduces, &exchanges}) {
      CAPTURE(ranks);
      const auto bytes = static_cast<std::uint64_t>(ranks) * 8000;
      const double walked = cost_of(*algorithm, ranks, bytes, costs_on(alike.levels[1])).seconds,
                   closed =
                       collective_time(algorithm->collective, "hierarchical", ranks, bytes, alike)
                           .seconds;
      CHECK(closed == doctest::Approx(walked).epsilon(1e-12));
    }
  // On one server it is the catalogue's.
  CHECK(all_reduce_of("hierarchical", 8, 1000, h100).walked);
  CHECK_THROWS_WITH(all_reduce_of("hierarchical", 12, 1000, h100),
                    "hierarchical takes whole servers of 8, and 12 ranks are none: choose a "
                    "multiple of 8");
  CHECK(all_reduce_of("hierarchical", 1024, 1000, h100).seconds >
        all_reduce_of("double_tree", 1024, 1000, h100).seconds);
  CHECK(algorithms_on(Collective::all_reduce, 12, h100).back() == "double_tree");
  CHECK(algorithms_on(Collective::all_to_all, 12, h100).back() == "pairwise");
  CHECK(algorithms_on(Collective::all_to_all, 16, h100).back() == "hierarchical");
  CHECK(algorithms_on(Collective::all_reduce, 8, find_machine("h100-nvls")).back() == "in_network");
}

TEST_CASE("few bytes want few steps, many bytes want few bytes") {
  const Machine h100 = find_machine("h100");
  const auto seconds = [&](const char* name, std::uint64_t bytes) {
    return all_reduce_of(name, 1024, bytes, h100).seconds;
  };
  CHECK(seconds("recursive_doubling", 1000) < seconds("halving_doubling", 1000));
  CHECK(seconds("halving_doubling", 1000) < seconds("ring", 1000));
  CHECK(seconds("halving_doubling", 1'000'000'000) < seconds("recursive_doubling", 1'000'000'000));
}
