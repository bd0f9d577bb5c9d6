// The cost model against the formulas of the literature and against the messages of the executor.
#include "collectives/selection/cost_model.hpp"

#include <bit>
#include <cmath>
#include <ctime>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "collectives/algorithms/aligned_chunks.hpp"
#include "collectives/process_group.hpp"
#include "collectives/selection/bus_bandwidth.hpp"
#include "collectives/selection/calibration.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;

namespace {

// The model of the papers: a message takes alpha + beta b and keeps both ports busy for that time.
constexpr double alpha = 1e-5, beta = 3e-9, adding = 7e-10;
constexpr CostParameters hockney{.alpha = alpha, .beta = beta, .gamma = adding, .overhead = alpha};

double seconds(Collective collective, std::string_view name, int size, std::uint64_t bytes,
               const CostParameters& parameters = hockney) {
  return cost_of(find_algorithm(collective, name), size, bytes, parameters).seconds;
}

// Within a relative error of 1e-5. (By default Approx also allows an absolute error, too large for
// microseconds.)
doctest::Approx about(double value) {
  return doctest::Approx(value).scale(1e-15);
}

// 0 for 1, 1 for 2, 2 for 3 and 4.
int rounded_up_log2(int n) {
  int log = 0;
  while ((1 << log) < n) ++log;
  return log;
}

}  // namespace

TEST_CASE("the cost of each algorithm is the formula of the literature for 2 to 17 ranks") {
  using enum Collective;
  for (int p = 2; p <= 17; ++p) {
    CAPTURE(p);
    const std::uint64_t bytes = 1000u * 16 * static_cast<std::uint64_t>(p);
    const double n = static_cast<double>(bytes), links = p - 1, log = rounded_up_log2(p);
    const auto is = [](double value) { return about(value); };

    CHECK(seconds(all_reduce, "ring", p, bytes) ==
          is(2 * links * (alpha + n / p * beta) + links * n / p * adding));
    CHECK(seconds(reduce_scatter, "ring", p, bytes) ==
          is(links * (alpha + n / p * (beta + adding))));
    CHECK(seconds(all_gather, "ring", p, bytes) == is(links * (alpha + n / p * beta)));
    CHECK(seconds(all_gather, "direct", p, bytes) == is(links * (alpha + n / p * beta)));
    CHECK(seconds(broadcast, "binomial", p, bytes) == is(log * (alpha + n * beta)));
    CHECK(seconds(broadcast, "linear", p, bytes) == is(links * (alpha + n * beta)));
    CHECK(seconds(broadcast, "chain", p, bytes) ==
          is(links * (alpha + n * beta)));  // without slices
    CHECK(seconds(reduce, "binomial", p, bytes) == is(log * (alpha + n * (beta + adding))));
    CHECK(seconds(reduce, "chain", p, bytes) == is(links * (alpha + n * (beta + adding))));
    CHECK(seconds(barrier, "dissemination", p, 0) == is(log * alpha));
    CHECK(seconds(all_to_all, "pairwise", p, bytes) >= links * (alpha + n / p * beta) * (1 - 1e-9));
    double blocks = 0;  // that a rank sends in Bruck's all-to-all: one for each bit of a distance
    for (int e = 1; e < p; ++e) blocks += std::popcount(static_cast<unsigned>(e));
    CHECK(seconds(all_to_all, "bruck", p, bytes) == is(log * alpha + blocks * n / p * beta));
    if ((p & (p - 1)) != 0) continue;
    CHECK(seconds(all_reduce, "recursive_doubling", p, bytes) ==
          is(log * (alpha + n * (beta + adding))));
    CHECK(seconds(all_reduce, "halving_doubling", p, bytes) ==
          is(2 * log * alpha + links / p * n * (2 * beta + adding)));
    CHECK(seconds(reduce_scatter, "halving", p, bytes) ==
          is(log * alpha + links / p * n * (beta + adding)));
    CHECK(seconds(all_gather, "doubling", p, bytes) == is(log * alpha + links / p * n * beta));
  }
}

TEST_CASE("recursive doubling costs two more steps than the next lower power of two") {
  for (const int p : {3, 5, 6, 7, 9, 12, 17}) {
    CAPTURE(p);
    const double n = 16000, steps = rounded_up_log2(p + 1) - 1;
    const double power = steps * (alpha + n * (beta + adding));
    CHECK(seconds(Collective::all_reduce, "recursive_doubling", p, 16000) ==
          about(power + 2 * alpha + n * (2 * beta + adding)).epsilon(1e-9));
  }
}

TEST_CASE("a chain with slices is a pipeline") {
  CostParameters sliced = hockney;
  sliced.slice_bytes = 1000;
  for (const int p : {2, 3, 6}) {
    CAPTURE(p);
    // One slice follows another on each link, and the last one has p-2 more links to pass.
    CHECK(seconds(Collective::broadcast, "chain", p, 50000, sliced) ==
          about((50 + p - 2) * (alpha + 1000 * beta)));
  }
  // If there are too many slices to walk one by one, each longer one costs as many messages: twice
  // the buffer takes twice the time.
  sliced.slice_bytes = 100;
  const double once = seconds(Collective::broadcast, "chain", 6, 100'000'000, sliced),
               twice = seconds(Collective::broadcast, "chain", 6, 200'000'000, sliced);
  CHECK(twice / once == about(2).epsilon(0.001));
  CHECK(once == about(1e6 * (alpha + 100 * beta)).epsilon(0.005));
}

TEST_CASE("a message can leave before the previous one has arrived") {
  CostParameters logp{.alpha = 10e-6, .beta = 1e-9, .gamma = 0, .overhead = 2e-6};
  // The root sends 5 messages of 2 us overhead and 1 us of bytes each; the last one arrives after
  // the delay.
  CHECK(seconds(Collective::broadcast, "linear", 6, 1000, logp) == about(4 * 3e-6 + 11e-6));
  CHECK(seconds(Collective::gather, "linear", 6, 6000, logp) == about(11e-6 + 4 * 3e-6));
}

TEST_CASE("a received chunk waits until the old content has left") {
  // Rank 0 receives chunk 0 from rank 3 and forwards it to rank 1 once chunks 1 and 2 have left.
  // Rank 2's chunk 0 has arrived long before.
  constexpr ChunkRange first{0}, others{1, 2};
  const auto send = [](int to, ChunkRange chunks) {
    return Step{.send = Send{.to = to, .chunks = chunks}, .receive = {}};
  };
  const auto receive = [](ChunkRange chunks) {
    return Step{.send = {},
                .receive = Receive{.from = 0, .chunks = chunks, .action = Action::overwrite}};
  };
  Step begin = send(1, others), end = send(1, first);
  begin.receive = Receive{.from = 3, .chunks = first, .action = Action::overwrite};
  end.receive = Receive{.from = 2, .chunks = first, .action = Action::add};
  const std::vector<Schedule> schedules{{3, {begin, end}},
                                        {3, {receive(others), receive(first)}},
                                        {3, {Step{}, send(0, first)}},
                                        {3, {send(0, first), Step{}}}};
  const double n = 1000;
  CHECK(cost_of(schedules, Chunks::even(3000, 3), 1, hockney).seconds ==
        about(2 * alpha + 3 * n * beta + n * adding));
}

TEST_CASE("ranks that share cores wait for the work of all ranks and for their turn") {
  CostParameters crowded{
      .alpha = 10e-6, .beta = 0, .gamma = 0, .overhead = 5e-6, .turn = 3e-6, .cores = 2};
  const Cost cost = cost_of(find_algorithm(Collective::all_reduce, "two_shot"), 6, 0, crowded);
  CHECK(cost.work == about(60 * 2 * 5e-6));  // 10 messages from each of 6 ranks, two ends each
  CHECK(cost.latency == about(2 * 5e-6));    // of one message, and of one that waits for it
  CHECK(cost.seconds == about(cost.latency + cost.work / 2));
  CHECK(cost.path < cost.work / 2);
  // Behind a slow network the cores are idle while the messages of either shot travel.
  CostParameters slow = crowded;
  slow.alpha += 1e-3;
  CHECK(seconds(Collective::all_reduce, "two_shot", 6, 0, slow) == about(2e-3 + cost.seconds));
  // A chain of five, of which each waits for the one before; its slices do not wait for each other.
  slow.slice_bytes = 100;
  CHECK(cost_of(find_algorithm(Collective::broadcast, "chain"), 6, 800, slow).latency ==
        about(5 * (1e-3 + 5e-6)));
  // One message after the other; each takes two turns longer, for the two further ranks on its
  // core.
  CHECK(seconds(Collective::broadcast, "chain", 6, 0, crowded) == about(5 * (10e-6 + 2 * 3e-6)));
  crowded.cores = 0;
  CHECK(seconds(Collective::broadcast, "chain", 6, 0, crowded) == about(5 * 10e-6));
  crowded = {
      .alpha = 1e-6, .beta = 1e-10, .gamma = 2e-10, .overhead = 1e-7, .copy = 4e-10, .cores = 2};
  CHECK(cost_of(find_algorithm(Collective::reduce, "binomial"), 3, 1000, crowded).work ==
        about(2 * (2 * (1e-7 + 1000 * 4e-10) + 1000 * 2e-10)));
}

TEST_CASE("the model counts exactly the bytes and messages that the executor sends") {
  for (const int size : {2, 3, 4, 6}) {
    for (const Algorithm& algorithm : all_algorithms()) {
      if (algorithm.collective != Collective::all_reduce) continue;
      CAPTURE(size);
      CAPTURE(algorithm.title());
      GroupOptions options;
      options.executor.slice_bytes = 4096;
      options.algorithms = AlgorithmSelection(fmt::format("all_reduce={}", algorithm.name));
      const std::size_t count = 16 * 840 + 7;
      const auto schedules = make_schedules(algorithm, size);
      CostParameters parameters = hockney;
      parameters.slice_bytes = options.executor.slice_bytes;
      const Cost cost =
          cost_of(schedules, aligned_chunks(count, schedules[0].chunks, 4), 4, parameters);
      run_threads(
          size,
          [&](ProcessGroup& group) {
            std::vector<float> x(count);
            const Traffic before = group.traffic();
            group.all_reduce(std::span(x));
            const Sent expected = cost.sent[static_cast<std::size_t>(group.rank())];
            const Sent sent{group.traffic().messages_sent - before.messages_sent,
                            group.traffic().payload_bytes_sent - before.payload_bytes_sent};
            require(sent == expected,
                    "rank {} sent {} bytes in {} messages, but the model expects {} in {}",
                    group.rank(), sent.bytes, sent.messages, expected.bytes, expected.messages);
          },
          options);
    }
  }
}

TEST_CASE("costs per byte are interpolated between the measured lengths") {
  MachineCosts machine{.common = {.alpha = 5},
                       .per_byte = {{1, 10, 100}, {2, 20, 200}, {4, 40, 400}}};
  CHECK(machine.at(4).beta == about(1));
  CHECK(machine.at(64000).copy == about(10));
  CHECK(machine.at(1000000).gamma == about(200));
  CHECK(machine.at(4000000).beta == about(3));  // half way from 1 MB to 16 MB, counted in factors
  CHECK(machine.at(1'000'000'000).copy == about(40));
  CHECK(machine.at(0).alpha == 5);
}

TEST_CASE("a correction is for one algorithm and number of ranks, and interpolated by length") {
  const Algorithm &ring = find_algorithm(Collective::all_reduce, "ring"),
                  &two_shot = find_algorithm(Collective::all_reduce, "two_shot");
  MachineCosts machine;
  machine.corrections = {{number_of(ring), 4, {2, 4, 1, 1, 1, 3, 5}}};
  CHECK(machine.correction(ring, 4, 10) == 2);
  CHECK(machine.correction(ring, 4, 16000) == about(4));
  CHECK(machine.correction(ring, 4, 16'000'000) == about(4));  // half way from 8 MB to 32 MB
  CHECK(machine.correction(ring, 4, 1'000'000'000) == 5);
  CHECK(machine.correction(ring, 3, 10) == 1);
  CHECK(machine.correction(two_shot, 4, 10) == 1);
}

TEST_CASE("an announced call waits once in each round, and copies once what is for everybody") {
  MachineCosts machine{
      .common = {.alpha = 1, .overhead = 0.4, .turn = 2, .cores = 2, .announced_bytes = 1000},
      .per_byte = {{9, 0.01, 0.001}, {9, 0.01, 0.001}, {9, 0.01, 0.001}}};
  const auto seconds_of = [&](Collective collective, const char* name, std::uint64_t bytes) {
    return machine.seconds_of(find_algorithm(collective, name), 4, bytes);
  };
  // Of 4 ranks 2 share a core: a wait is 3 seconds, and work counts twice. To see the 3 others
  // takes a quarter of an overhead each.
  const auto seconds_for = [](double rounds, double copied, double added) {
    return rounds * 3 + 2 * (rounds * 3 * 0.1 + copied * 0.01 + added * 0.001);
  };
  CHECK(seconds_of(Collective::all_reduce, "one_shot", 100) == about(seconds_for(1, 400, 300)));
  CHECK(seconds_of(Collective::all_reduce, "two_shot", 100) == about(seconds_for(2, 250, 75)));
  CHECK(seconds_of(Collective::all_reduce, "two_shot", 2001) ==
        about(seconds_for(6, 2001 * 2.5, 2001 * 0.75)));  // three segments
  CHECK(seconds_of(Collective::reduce_scatter, "direct", 100) == about(seconds_for(1, 150, 75)));
  CHECK(seconds_of(Collective::all_gather, "direct", 100) == about(seconds_for(1, 100, 0)));
  CHECK(seconds_of(Collective::all_to_all, "pairwise", 100) == about(seconds_for(1, 150, 0)));
  const Algorithm& two_shot = find_algorithm(Collective::all_reduce, "two_shot");
  CHECK(machine.least_seconds_of(two_shot, 4, 100) == machine.seconds_of(two_shot, 4, 100));
  machine.common.announced_bytes = 0;
  CHECK(machine.seconds_of(two_shot, 4, 100) == cost_of(two_shot, 4, 100, machine.at(100)).seconds);
}

TEST_CASE("the cost of all algorithms for 64 ranks takes seconds of a processor at most") {
  CostParameters sliced{
      .alpha = 2e-5, .beta = 1e-10, .gamma = 1e-11, .overhead = 5e-6, .slice_bytes = 262144};
  const std::clock_t start = std::clock();
  for (const Algorithm& algorithm : all_algorithms()) cost_of(algorithm, 64, 100'000'000, sliced);
  const double taken = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  MESSAGE(fmt::format("all algorithms, 64 ranks, 100 MB: {:.1f} ms", taken * 1e3));
  CHECK(taken < 3);
  const auto broadcast = [&](const char* name) {
    return seconds(Collective::broadcast, name, 64, 100'000'000, sliced);
  };
  CHECK(broadcast("chain") < broadcast("binomial") / 2);  // still a pipeline
}

TEST_CASE("the bound is at most the cost, and the cost where no message waits for another") {
  CostParameters crowded = hockney;
  crowded.overhead = alpha / 5;
  crowded.copy = 2e-10;
  crowded.turn = alpha;
  crowded.cores = 2;
  CostParameters sliced = crowded;
  sliced.slice_bytes = 4096;
  for (const CostParameters& parameters : {hockney, crowded, sliced})
    for (const Algorithm& algorithm : all_algorithms())
      for (const int size : {2, 3, 4, 7, 16})
        for (const std::uint64_t bytes : {0, 1, 1000, 1'000'003, 100'000'000}) {
          const auto schedules = make_schedules(algorithm, size);
          const auto chunks = Chunks::even(bytes, schedules[0].chunks);
          const double least = least_seconds(schedules, chunks, 1, parameters);
          INFO(algorithm.title(), ", ", size, " ranks, ", bytes, " bytes");
          CHECK(least > 0);
          CHECK(least <= cost_of(schedules, chunks, 1, parameters).seconds * (1 + 1e-9));
        }
  const auto ring = make_schedules(find_algorithm(Collective::all_reduce, "ring"), 4);
  CHECK(least_seconds(ring, Chunks::even(4000, 4), 1, hockney) ==
        about(seconds(Collective::all_reduce, "ring", 4, 4000)));
}

TEST_CASE("schedules that wait for a message that is never sent are an error") {
  std::vector<Schedule> schedules =
      make_schedules(find_algorithm(Collective::all_reduce, "ring"), 3);
  schedules[1].steps[2].send.reset();
  CHECK_THROWS_WITH_AS(cost_of(schedules, Chunks::even(300, 3), 1, hockney),
                       "rank 0 waits for a message that is never sent: these schedules do not end "
                       "(ringside prove says why)",
                       Error);
}

TEST_CASE("bus_bandwidth has the factors of nccl-tests") {
  const auto factor = [](Collective collective, int ranks) {
    return bus_bandwidth({.collective = collective, .count = 250, .label = {}}, ranks, 1) / 1000;
  };
  CHECK(factor(Collective::all_reduce, 2) == doctest::Approx(1));
  CHECK(factor(Collective::all_reduce, 4) == doctest::Approx(1.5));
  CHECK(factor(Collective::all_gather, 4) == doctest::Approx(0.75));
  CHECK(factor(Collective::reduce_scatter, 4) == doctest::Approx(0.75));
  CHECK(factor(Collective::all_to_all, 4) == doctest::Approx(0.75));
  CHECK(factor(Collective::broadcast, 4) == 1);
  CHECK(factor(Collective::reduce, 4) == 1);
  CHECK(factor(Collective::barrier, 4) == 0);
  CHECK(bus_bandwidth({.collective = Collective::all_reduce, .count = 1, .label = {}}, 2, 0) == 0);
}

TEST_CASE("copies within a rank take time of a core, and ranks that share the core take turns") {
  const auto of_six = [](const char* algorithm, const CostParameters& costs) {
    return seconds(Collective::all_to_all, algorithm, 6, 48, costs);
  };
  // Over shared memory Bruck's copies take longer than the two messages that it saves. On 2 cores
  // it was measured to take 1.5 times as long as pairwise; over TCP a message costs more.
  CostParameters shm = built_in_costs("shm").at(48), tcp = built_in_costs("tcp").at(48);
  shm.cores = tcp.cores = 2;
  CHECK(of_six("bruck", shm) > 1.4 * of_six("pairwise", shm));
  CHECK(of_six("bruck", tcp) < of_six("pairwise", tcp));

  // Where all else is free: 5 steps within the rank; then messages of 3, 2 and 2 pieces, each after
  // the last one. Both ends copy all pieces but one.
  CostParameters free{.cores = 6};
  const double alone = of_six("bruck", free);
  CHECK(alone == about((5 + 2 * (2 + 1 + 1)) * 0.4e-6));
  CHECK(of_six("pairwise", free) == 0);
  free.cores = 2;  // a rank waits for the copies of two others
  CHECK(of_six("bruck", free) == about(3 * alone));
  free.cores = 0;  // the model of the literature
  CHECK(of_six("bruck", free) == 0);
}
