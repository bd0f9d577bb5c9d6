// Blocks of unequal size, 0 allowed, against values that each rank computes for itself; and what
// the ranks are told when their counts differ.
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "collectives/algorithms/catalogue.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/sample.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

using Counts = std::vector<std::size_t>;

// Some without elements, and one of several slices: 150000 fp32 are 600 kB.
std::vector<Counts> unequal_counts(int size) {
  Counts rising(size), one(size, 0), none(size, 0), long_one(size, 3);
  std::iota(rising.begin(), rising.end(), 0);
  one.back() = 5;
  long_one[size / 2] = 150000;
  return {rising, one, none, long_one};
}

std::size_t length_until(const Counts& counts, int until) {
  return std::accumulate(counts.begin(), counts.begin() + until, std::size_t{0});
}

float number_of_rank(int rank, std::size_t i) {
  return static_cast<float>(1000 * rank + static_cast<int>(i % 997));
}

std::vector<float> numbers(int rank, std::size_t begin, std::size_t count) {
  std::vector<float> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = number_of_rank(rank, begin + i);
  return made;
}

// How many elements rank `from` sends to rank `to`.
std::size_t length_between(int from, int to, std::size_t scale) {
  return (from + 2 * to) % 3 == 0 ? 0 : scale * (1 + from * 3 + to);
}

// A backend like those of libraries.
class OnlyEqual final : public Backend {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string name() const override { return "library"; }
  void abort(const std::string&) noexcept override {}
  void run(const Call& call, const void*, void*, const BlockBegins&) override {
    require_equal_blocks(call);
  }
};

// Over every transport, with both executors.
void with_both_executors(const Body& body) {
  testing::Sample sample;
  for (const int size : {1, 2, 3, 4})
    for (const auto kind : {ExecutorKind::pipelined, ExecutorKind::simple}) {
      if (!sample.takes()) continue;
      GroupOptions options;
      options.executor.kind = kind;
      CAPTURE(size);
      on_every_transport(size, body, options);
    }
}

}  // namespace

TEST_CASE("all_gather and reduce_scatter of unequal blocks, with every algorithm") {
  with_both_executors([](ProcessGroup& group) {
    const int p = group.size(), rank = group.rank();
    for (const Counts& counts : unequal_counts(p))
      for (const Algorithm& algorithm : all_algorithms()) {
        const bool forced = algorithm.collective == Collective::all_gather ||
                            algorithm.collective == Collective::reduce_scatter;
        if (!forced) continue;
        group.set_algorithms(AlgorithmSelection(
            fmt::format("{}={}", name_of(algorithm.collective), algorithm.name)));
        const std::size_t all = length_until(counts, p), begin = length_until(counts, rank),
                          own = counts[rank];
        std::vector<float> expected(all);
        if (algorithm.collective == Collective::all_gather) {
          for (int r = 0; r < p; ++r)
            for (std::size_t i = 0; i < counts[r]; ++i)
              expected[length_until(counts, r) + i] = number_of_rank(r, i);
          const std::vector<float> input = numbers(rank, 0, own);
          std::vector<float> gathered(all, -1);
          group.all_gather(std::span(input), {std::span(gathered), counts}, "w");
          require(gathered == expected, "{} of {}", algorithm.title(), counts);
        }
        if (algorithm.collective == Collective::reduce_scatter) {
          const std::vector<float> input = numbers(rank, 0, all);
          std::vector<float> block(own, -1);
          group.reduce_scatter({std::span(input), counts}, std::span(block), ReduceOp::avg);
          for (std::size_t i = 0; i < own; ++i)
            require(block[i] == static_cast<float>(1000 * p * (p - 1) / 2 +
                                                   p * static_cast<int>((begin + i) % 997)) /
                                    static_cast<float>(p),
                    "{} of {}: element {} is {}", algorithm.title(), counts, i, block[i]);
        }
      }
  });
}

TEST_CASE("a backend without unequal blocks refuses them, and no others") {
  ProcessGroup group(std::make_unique<OnlyEqual>());
  std::vector<float> input(3), output(3);
  const Counts counts{3};
  CHECK_NOTHROW(group.all_gather(std::span(input), std::span(output)));
  CHECK_THROWS_WITH_AS(
      group.all_gather(std::span(input), {std::span(output), counts}),
      "the library backend has no all_gather of unequal blocks: make them equal, or use tcp or shm",
      Error);
}

TEST_CASE("gather and scatter of unequal blocks") {
  with_both_executors([](ProcessGroup& group) {
    const int p = group.size(), rank = group.rank(), root = p - 1;
    for (const Counts& counts : unequal_counts(p)) {
      const std::size_t all = rank == root ? length_until(counts, p) : 0;
      const std::vector<float> own = numbers(rank, 0, counts[rank]);
      std::vector<float> whole(all, -1), block(counts[rank], -1);
      group.gather(std::span(own), {std::span(whole), counts}, root);
      for (int r = 0; r < p && rank == root; ++r)
        for (std::size_t i = 0; i < counts[r]; ++i)
          require(whole[length_until(counts, r) + i] == number_of_rank(r, i),
                  "gather of {} from rank {}", counts, r);
      group.scatter({std::span(whole), counts}, std::span(block), root);
      require(block == own, "scatter of {}", counts);
    }
  });
}

TEST_CASE("all_to_all where each rank knows only its own counts") {
  with_both_executors([](ProcessGroup& group) {
    const int p = group.size(), rank = group.rank();
    for (const std::size_t scale : {0, 1, 20000}) {
      Counts to_send, to_receive;
      std::vector<float> input, expected;
      for (int r = 0; r < p; ++r) {
        to_send.push_back(length_between(rank, r, scale));
        to_receive.push_back(length_between(r, rank, scale));
        const auto out = numbers(rank, 7 * r, to_send.back());
        const auto in = numbers(r, 7 * rank, to_receive.back());
        input.insert(input.end(), out.begin(), out.end());
        expected.insert(expected.end(), in.begin(), in.end());
      }
      std::vector<float> output(expected.size(), -1);
      group.all_to_all({std::span(input), to_send}, {std::span(output), to_receive});
      require(output == expected, "rank {} received {}", rank, to_receive);
    }
  });
}

TEST_CASE("counts that differ between ranks are named by both") {
  for (const auto kind : {ExecutorKind::pipelined, ExecutorKind::simple}) {
    GroupOptions options;
    options.executor.kind = kind;
    const auto gathered = run_tcp(
        2,
        [](ProcessGroup& group) {  // both give 8 elements
          const Counts counts = group.rank() == 0 ? Counts{5, 3} : Counts{4, 4};
          std::vector<float> own(counts[group.rank()]), all(8);
          group.all_gather(std::span(own), {std::span(all), counts}, "w");
        },
        options);
    for (const auto& outcome : gathered) {
      CHECK(contains(outcome, "block of"));
      CHECK(contains(outcome, "all_gather of fp32 in unequal blocks"));
      CHECK(contains(outcome, "for w, but rank"));
      CHECK(contains(outcome, "both ranks must give the same count for a block"));
    }
    const auto exchanged = run_shm(
        2,
        [](ProcessGroup& group) {  // rank 0 sends 200000, rank 1 expects 100000: several slices
          const bool first = group.rank() == 0;
          const Counts send = first ? Counts{1, 200000} : Counts{3, 1};
          const Counts receive = first ? Counts{1, 3} : Counts{100000, 1};
          std::vector<float> input(length_until(send, 2)), output(length_until(receive, 2));
          group.all_to_all({std::span(input), send}, {std::span(output), receive});
        },
        options);
    CHECK(
        contains(exchanged[0], "rank 1 expects a block of 100000 elements from rank 0 in call #1"));
    CHECK(contains(exchanged[1], "but rank 0 sends 200000"));
  }
}

TEST_CASE("wrong counts are refused before anything is sent") {
  run_threads(2, [](ProcessGroup& group) {
    std::vector<float> own(2), all(4);
    const Counts three = {1, 2, 1}, five = {2, 3}, good = {2, 2};
    CHECK_THROWS_WITH_AS(group.all_gather(std::span(own), {std::span(all), three}),
                         "all_gather: expected 2 counts of the output's blocks, one for each rank, "
                         "got 3",
                         Error);
    CHECK_THROWS_WITH_AS(group.all_gather(std::span(own), {std::span(all), five}),
                         "all_gather: the output has 4 elements, but the counts of its blocks "
                         "(2, 3) add up to 5",
                         Error);
    CHECK_THROWS_WITH_AS(group.all_gather(std::span(all).first(2), {std::span(all), five}),
                         "all_gather: the output has 4 elements, but the counts of its blocks "
                         "(2, 3) add up to 5",
                         Error);
    CHECK_THROWS_WITH_AS(
        group.all_to_all({std::span(all), good}, {std::span(all), good}),
        "all_to_all: blocks of unequal size cannot be exchanged in place: give two buffers", Error);
    const Counts own_of_1 = {3, 1}, own_of_3 = {1, 3};
    std::vector<float> other(4);
    if (group.rank() == 0)
      CHECK_THROWS_WITH_AS(
          group.all_to_all({std::span(all), own_of_3}, {std::span(other), own_of_1}),
          "all_to_all: rank 0 sends 1 elements to itself, but receives 3", Error);
    CHECK_THROWS_WITH_AS(group.all_to_all({std::span(all), good}, std::span(all)),
                         "all_to_all: give the counts of the blocks of both buffers, or of none",
                         Error);
    CHECK_THROWS_WITH_AS(group.all_reduce(std::span(all), ReduceOp::bit_or),
                         "all_reduce: bit_or is not defined for fp32; use a type of integers",
                         Error);
    group.barrier();
  });
}
