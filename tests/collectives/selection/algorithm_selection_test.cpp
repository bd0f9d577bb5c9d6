// Which algorithm a call selects.
#include "collectives/selection/algorithm_selection.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/selection/calibration.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// A network on which a message costs as much as `bytes_per_message` bytes, with a core for every
// rank.
MachineCosts network(double bytes_per_message) {
  MachineCosts costs{.common = {.alpha = 1e-5, .overhead = 1e-6, .slice_bytes = 256 * 1024}};
  const double beta = 1e-5 / bytes_per_message;
  for (auto& per_byte : costs.per_byte) per_byte = {.beta = beta, .copy = beta, .gamma = 1e-12};
  return costs;
}

AlgorithmSelection by(const MachineCosts& costs) {
  AlgorithmSelection selection;
  selection.set_costs(costs);
  return selection;
}

}  // namespace

TEST_CASE("without forced algorithms and costs, the selection is the default of the catalogue") {
  for (const Collective collective : all_collectives)
    CHECK(&AlgorithmSelection().choose(collective, 1000, DataType::fp32, 4) ==
          &find_algorithm(collective));
}

TEST_CASE("forced algorithms are selected, and other collectives keep theirs") {
  AlgorithmSelection selection("all_reduce=two_shot,broadcast=chain");
  CHECK(selection.choose(Collective::all_reduce, 1, DataType::fp32, 4).name == "two_shot");
  CHECK(selection.choose(Collective::broadcast, 1, DataType::fp32, 4).name == "chain");
  CHECK(selection.choose(Collective::reduce, 1, DataType::fp32, 4).name == "binomial");
  selection.set_costs(network(1000));
  CHECK(selection.choose(Collective::all_reduce, 1, DataType::fp32, 4).name == "two_shot");
  CHECK(AlgorithmSelection("all_reduce=naive")
            .choose(Collective::all_reduce, 1, DataType::fp32, 4)
            .name == "naive");
}

TEST_CASE("an unknown name is an error that lists the known ones") {
  CHECK_THROWS_WITH_AS(AlgorithmSelection("all_reduce"),
                       "'all_reduce' does not name an algorithm: write collective=algorithm, such "
                       "as all_reduce=ring, or a file, such as my.json, separated by commas",
                       Error);
  CHECK_THROWS_WITH_AS(
      AlgorithmSelection("reduce_scatter=tree"),
      "there is no algorithm named 'tree' for reduce_scatter; there are ring, halving, direct, pat",
      Error);
  CHECK_THROWS_AS(AlgorithmSelection("allreduce=ring"), Error);
  CHECK_THROWS_AS(AlgorithmSelection("all_reduce="), Error);
}

TEST_CASE(
    "few bytes select few messages, many bytes select short ones, and the selection changes once") {
  for (const int size : {4, 8, 13, 16}) {
    CAPTURE(size);
    const AlgorithmSelection selection = by(network(10000));
    const auto name = [&](Collective collective, std::size_t count) {
      return selection.choose(collective, count, DataType::fp32, size).name;
    };
    CHECK((name(Collective::all_reduce, 1) == "recursive_doubling" ||
           name(Collective::all_reduce, 1) == "one_shot"));
    CHECK((name(Collective::all_reduce, 25'000'000) == "ring" ||
           name(Collective::all_reduce, 25'000'000) == "halving_doubling"));
    CHECK(name(Collective::broadcast, 1) == "binomial");
    CHECK(name(Collective::broadcast, 25'000'000) == "chain");
    bool short_once = false;
    for (std::size_t count = 1; count < 100'000'000; count *= 2) {
      const bool whole_buffers = name(Collective::all_reduce, count) == "recursive_doubling" ||
                                 name(Collective::all_reduce, count) == "one_shot";
      CHECK_FALSE((short_once && whole_buffers));
      short_once = short_once || !whole_buffers;
    }
  }
}

TEST_CASE("the selection is the first in the catalogue that is within 5 % of the cheapest") {
  MachineCosts crowded = network(1000);
  crowded.common.cores = 2;
  crowded.common.turn = 1e-6;
  for (auto& per_byte : crowded.per_byte) per_byte.copy = per_byte.beta / 2;
  for (const MachineCosts& costs : {network(100), network(10000), crowded})
    for (const Collective collective : all_collectives)
      for (const int size : {2, 3, 5, 8, 12})
        for (int size_class = 0; size_class < 28; size_class += 3) {
          const std::uint64_t least = size_class == 0 ? 0 : std::uint64_t{1} << (size_class - 1);
          const auto candidates = algorithms_to_select(collective);
          std::vector<double> seconds;
          for (const Algorithm* each : candidates)
            seconds.push_back(costs.seconds_of(*each, size, least + least / 2));
          const double enough = 1.05 * *std::min_element(seconds.begin(), seconds.end());
          const auto first =
              std::find_if(seconds.begin(), seconds.end(), [&](double s) { return s <= enough; });
          INFO(name_of(collective), " of ", least, " bytes on ", size, " ranks");
          CHECK(by(costs).choose(collective, least, DataType::uint8, size).name ==
                candidates[static_cast<std::size_t>(first - seconds.begin())]->name);
        }
}

TEST_CASE("over shared memory announced calls are cheaper, and most where ranks take turns") {
  const auto selected = [](const MachineCosts& costs, int cores, Collective collective,
                           std::size_t bytes = 1'000'000) {
    MachineCosts changed = costs;
    changed.common.cores = cores;
    return by(changed).choose(collective, bytes, DataType::uint8, 4).name;
  };
  const MachineCosts shm = built_in_costs("shm");
  CHECK(selected(shm, 2, Collective::all_reduce) == "two_shot");
  CHECK(selected(shm, 4, Collective::all_reduce) == "two_shot");
  CHECK(selected(shm, 2, Collective::all_reduce, 4) == "one_shot");
  CHECK(selected(shm, 2, Collective::reduce_scatter) == "direct");
  CHECK(selected(shm, 2, Collective::all_gather) == "direct");
  CHECK(selected(shm, 2, Collective::all_to_all) == "pairwise");
  MachineCosts behind_a_link = shm;
  behind_a_link.common.announced_bytes = 0;
  CHECK(selected(behind_a_link, 2, Collective::all_reduce) != "two_shot");
  CHECK(selected(behind_a_link, 2, Collective::reduce_scatter) != "direct");
  CHECK(selected(built_in_costs("tcp"), 2, Collective::all_reduce) != "two_shot");
}

TEST_CASE("costlier messages move the change of the selection to larger buffers") {
  const auto turning_point = [](double bytes_per_message) {
    const AlgorithmSelection selection = by(network(bytes_per_message));
    std::size_t count = 1;
    while (selection.choose(Collective::all_reduce, count, DataType::fp32, 8).name ==
           selection.choose(Collective::all_reduce, 1, DataType::fp32, 8).name)
      count *= 2;
    return count;
  };
  CHECK(turning_point(1e3) < turning_point(1e5));
  CHECK(turning_point(1e5) < turning_point(1e7));
}

namespace {

// A machine on which the ring takes 100 times as long as by the model.
MachineCosts with_slow_ring(int ranks) {
  MachineCosts costs = network(1);
  Correction& slow = costs.corrections.emplace_back();
  slow.algorithm = number_of(find_algorithm(Collective::all_reduce, "ring"));
  slow.ranks = static_cast<std::uint64_t>(ranks);
  std::fill(std::begin(slow.factors), std::end(slow.factors), 100);
  return costs;
}

}  // namespace

TEST_CASE("an algorithm is not selected where it was measured to be slower than by the model") {
  const auto name = [](const MachineCosts& costs, int ranks) {
    return by(costs).choose(Collective::all_reduce, 10'000'000, DataType::fp32, ranks).name;
  };
  CHECK(name(network(1), 4) == "ring");
  CHECK(name(with_slow_ring(4), 4) != "ring");
  CHECK(name(with_slow_ring(4), 3) == "ring");
}

TEST_CASE("an all-to-all takes few messages for short blocks, and direct ones for unequal blocks") {
  MachineCosts costs = network(1e4);
  costs.common.overhead = costs.common.alpha;  // else all direct messages are on their way at once
  const AlgorithmSelection selection = by(costs);
  const auto name = [&](std::size_t count, bool unequal) {
    return selection.choose(Collective::all_to_all, count, DataType::fp32, 8, unequal).name;
  };
  CHECK(name(8, false) == "bruck");
  CHECK(name(10'000'000, false) == "pairwise");
  CHECK(name(8, true) == "pairwise");
  const AlgorithmSelection forced("all_to_all=bruck");
  CHECK(forced.choose(Collective::all_to_all, 8, DataType::fp32, 8, true).name == "bruck");
}

TEST_CASE("a cautionary algorithm is never selected if there is another") {
  for (const double bytes_per_message : {1.0, 1e4, 1e9})
    for (const Collective collective : all_collectives)
      for (const std::size_t count : {0, 1, 1000, 1'000'000})
        for (const int size : {2, 3, 4, 7}) {
          const Algorithm& chosen =
              by(network(bytes_per_message)).choose(collective, count, DataType::fp32, size);
          CHECK(chosen.collective == collective);
          CHECK_FALSE(chosen.cautionary);
        }
  CHECK(find_algorithm(Collective::all_reduce, "naive").cautionary);
  CHECK_FALSE(find_algorithm(Collective::gather, "linear").cautionary);
}

TEST_CASE("calls with the same number of bytes select the same algorithm, whatever their type") {
  const AlgorithmSelection first = by(built_in_costs("tcp")), second = by(built_in_costs("tcp"));
  for (std::size_t count = 1; count < 1'000'000; count = count * 3 + 1) {
    CHECK(&first.choose(Collective::all_reduce, count, DataType::fp32, 4) ==
          &second.choose(Collective::all_reduce, count, DataType::fp32, 4));
    CHECK(&first.choose(Collective::all_reduce, 2 * count, DataType::fp32, 4) ==
          &first.choose(Collective::all_reduce, count, DataType::fp64, 4));
  }
}

namespace {

// The algorithm that each rank selects for 30,000 elements over a transport, which then adds them
// up.
std::vector<std::string> selected_over(const std::string& transport, int size,
                                       const std::function<Calibration(int rank)>& calibration_of) {
  const auto port = free_port();
  std::vector<std::string> names(static_cast<std::size_t>(size));
  const auto outcomes = on_threads(size, [&](int rank) {
    const RankInfo rank_info = rank_info_of(rank, size, port);
    ProcessGroup group =
        ProcessGroup::over(transport == "tcp" ? connect_tcp(rank_info, calibration_of(rank))
                                              : connect_shm(rank_info, {}, calibration_of(rank)),
                           {});
    names[static_cast<std::size_t>(rank)] =
        group.algorithm_for(Collective::all_reduce, 30000, DataType::fp32).name;
    std::vector<float> x(30000, 1.0f);
    group.all_reduce(std::span(x));
    require(x[29999] == static_cast<float>(size), "the sum is {}", x[29999]);
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
  return names;
}

// A machine where a message costs as much as so many bytes, over any transport.
Calibration measured(double bytes_per_message) {
  return {.costs = {{"tcp", network(bytes_per_message)}, {"shm", network(bytes_per_message)}},
          .fault = ""};
}

}  // namespace

TEST_CASE("ranks select alike: by what they have measured, or built-in costs where that differs") {
  for (const std::string transport : {"tcp", "shm"})
    for (const int size : {2, 3, 4}) {
      CAPTURE(transport);
      CAPTURE(size);
      const auto built_in = selected_over(transport, size, [](int) { return Calibration(); });
      for (const double bytes_per_message : {1.0, 1e9}) {
        const auto all =
            selected_over(transport, size, [&](int) { return measured(bytes_per_message); });
        MachineCosts costs = network(bytes_per_message);
        costs.common.announced_bytes = built_in_costs(transport).common.announced_bytes;
        costs.common.slice_bytes = built_in_costs(transport).common.slice_bytes;
        costs.common.cores = built_in_costs(transport).common.cores;
        CHECK(all ==
              std::vector<std::string>(
                  static_cast<std::size_t>(size),
                  std::string(
                      by(costs).choose(Collective::all_reduce, 30000, DataType::fp32, size).name)));
      }
      // On one rank a message costs as much as a byte, on the others as much as a gigabyte.
      for (const int odd : {0, size - 1})
        CHECK(selected_over(transport, size, [&](int rank) {
                return measured(rank == odd ? 1.0 : 1e9);
              }) == built_in);
      CHECK(selected_over(transport, size, [&](int rank) {
              return rank == 0 ? measured(1e9) : Calibration();
            }) == built_in);
    }
}

TEST_CASE("a new group has made no call: the first is that of its user") {
  GroupOptions options;
  options.algorithms = AlgorithmSelection("all_reduce=ring");
  for (const auto& outcome : run_tcp(
           2,
           [](ProcessGroup& group) {
             require(group.traffic().messages_sent == 0, "{} messages were sent",
                     group.traffic().messages_sent);
             std::vector<float> x(group.rank() == 0 ? 100 : 200);
             try {
               group.all_reduce(std::span(x));
             } catch (const Error& error) {
               require(std::string(error.what()).find("call #1, all_reduce") != std::string::npos,
                       "{}", error.what());
             }
           },
           options))
    CHECK(outcome == "");
}
