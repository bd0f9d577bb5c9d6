// Which algorithm a call takes.
#include "collectives/selection/algorithm_selection.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "collectives/selection/calibration.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// A network with a core for every rank, on which a message costs as much as so many bytes.
MachineCosts network(double bytes_per_message) {
  MachineCosts costs{.common = {.alpha = 1e-5, .overhead = 1e-6, .slice_bytes = 256 * 1024}};
  for (auto& per_byte : costs.per_byte) per_byte = {1e-5 / bytes_per_message, 0, 1e-12};
  return costs;
}

AlgorithmSelection by(const MachineCosts& costs) {
  AlgorithmSelection choice;
  choice.set_costs(costs);
  return choice;
}

}  // namespace

TEST_CASE("without a word and without costs the default of the catalogue is taken") {
  for (const Collective collective : all_collectives)
    CHECK(&AlgorithmSelection().choose(collective, 1000, DataType::fp32, 4) ==
          &find_algorithm(collective));
}

TEST_CASE("what is forced is taken, and the rest is as it was") {
  AlgorithmSelection choice("all_reduce=two_shot,broadcast=chain");
  CHECK(choice.choose(Collective::all_reduce, 1, DataType::fp32, 4).name == "two_shot");
  CHECK(choice.choose(Collective::broadcast, 1, DataType::fp32, 4).name == "chain");
  CHECK(choice.choose(Collective::reduce, 1, DataType::fp32, 4).name == "binomial");
  choice.set_costs(network(1000));
  CHECK(choice.choose(Collective::all_reduce, 1, DataType::fp32, 4).name == "two_shot");
  CHECK(AlgorithmSelection("all_reduce=naive")
            .choose(Collective::all_reduce, 1, DataType::fp32, 4)
            .name == "naive");
}

TEST_CASE("a wrong name says which there are") {
  CHECK_THROWS_WITH_AS(AlgorithmSelection("all_reduce"),
                       "'all_reduce' does not name an algorithm: write collective=algorithm, such "
                       "as all_reduce=ring, with commas in "
                       "between",
                       Error);
  CHECK_THROWS_WITH_AS(
      AlgorithmSelection("reduce_scatter=tree"),
      "there is no algorithm named 'tree' for reduce_scatter; there are ring, halving, direct",
      Error);
  CHECK_THROWS_AS(AlgorithmSelection("allreduce=ring"), Error);
  CHECK_THROWS_AS(AlgorithmSelection("all_reduce="), Error);
}

TEST_CASE("few bytes take few messages, many bytes take short ones, and the choice turns once") {
  for (const int size : {4, 8, 13, 16}) {
    CAPTURE(size);
    const AlgorithmSelection choice = by(network(10000));
    const auto name = [&](Collective collective, std::size_t count) {
      return choice.choose(collective, count, DataType::fp32, size).name;
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

TEST_CASE("dearer messages turn the choice later") {
  const auto turn = [](double bytes_per_message) {
    const AlgorithmSelection choice = by(network(bytes_per_message));
    std::size_t count = 1;
    while (choice.choose(Collective::all_reduce, count, DataType::fp32, 8).name ==
           choice.choose(Collective::all_reduce, 1, DataType::fp32, 8).name)
      count *= 2;
    return count;
  };
  CHECK(turn(1e3) < turn(1e5));
  CHECK(turn(1e5) < turn(1e7));
}

TEST_CASE("cautionary tales are never chosen where there is another") {
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

TEST_CASE("the same kind of call always takes the same algorithm, by bytes and not by elements") {
  const AlgorithmSelection first = by(built_in_costs("tcp")), second = by(built_in_costs("tcp"));
  for (std::size_t count = 1; count < 1'000'000; count = count * 3 + 1) {
    CHECK(&first.choose(Collective::all_reduce, count, DataType::fp32, 4) ==
          &second.choose(Collective::all_reduce, count, DataType::fp32, 4));
    CHECK(&first.choose(Collective::all_reduce, 2 * count, DataType::fp32, 4) ==
          &first.choose(Collective::all_reduce, count, DataType::fp64, 4));
  }
}

TEST_CASE("ranks whose calibrations differ choose alike because they take rank 0's") {
  // For rank 0 a message costs next to nothing, for the others it costs a gigabyte.
  const auto choose = [](ProcessGroup& group) {
    const auto name = group.algorithm_for(Collective::all_reduce, 30000, DataType::fp32).name;
    require(name == "ring", "rank {} chose {}", group.rank(), name);
    std::vector<float> x(30000, 1.0f);
    group.all_reduce(std::span(x));
    require(x[29999] == static_cast<float>(group.size()), "the sum is {}", x[29999]);
  };
  for (const auto connect : {&ProcessGroup::over_tcp, &ProcessGroup::over_shm})
    for (const int size : {2, 3, 4}) {
      const auto port = free_port();
      const auto outcomes = on_threads(size, [&](int rank) {
        GroupOptions options;
        options.algorithms = by(network(rank == 0 ? 1.0 : 1e9));
        ProcessGroup group = connect(rank_info_of(rank, size, port), options);
        choose(group);
      });
      for (const auto& outcome : outcomes) CHECK(outcome == "");
    }
}

TEST_CASE("a group counts neither messages nor calls for what it agreed on when it was made") {
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
