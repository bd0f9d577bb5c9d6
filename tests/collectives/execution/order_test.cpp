// The order of additions: executors add as the schedule's expressions say (proof/order.hpp), and
// with RINGSIDE_ORDER=fixed alike everywhere.

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/random.hpp"
#include "collectives/algorithms/aligned_chunks.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/proof/order.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

using Numbers = std::vector<float>;

// Of many magnitudes, so that nearly every other order of addition rounds to other bits.
float value(int rank, std::size_t i) {
  const auto r = static_cast<std::uint64_t>(rank);
  return static_cast<float>(
      std::ldexp(random_normal(11, r, i), static_cast<int>(random_below(12, 12, r, i))));
}

Numbers values_of(int rank, std::size_t count) {
  Numbers values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, i);
  return values;
}

// Element i of the sum in the order of the expression at `text`, which ends behind it.
float evaluate(const char*& text, std::size_t i) {
  if (*text != '(')
    return value(static_cast<int>(std::strtol(text, const_cast<char**>(&text), 10)), i);
  const float a = evaluate(++text, i);
  const float b = evaluate(++text, i);  // behind the +
  ++text;                               // behind the )
  return a + b;
}

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

GroupOptions options_with(ExecutorKind kind) {
  GroupOptions options;
  options.executor.kind = kind;
  options.executor.slice_bytes = 256;
  options.executor.slices_per_segment = 2;
  options.executor.timeout = Seconds(60);
  return options;
}

// How many elements `result`, which begins at element `begin`, has that are not the sum in the
// order of their chunk; and how many are the plain sum from rank 0 to the last.
struct Compared {
  int wrong = 0, plain = 0;
};
void compare(const Numbers& result, std::size_t begin, const std::vector<std::string>& orders,
             const Chunks& chunks, int size, Compared& compared) {
  for (int c = 0; c < chunks.chunks(); ++c)
    for (std::size_t i = chunks.begin(c); i < chunks.begin(c + 1); ++i) {
      if (i < begin || i >= begin + result.size()) continue;
      const char* text = orders[static_cast<std::size_t>(c)].c_str();
      if (!same_bits(result[i - begin], evaluate(text, i))) ++compared.wrong;
      float plain = 0;
      for (int rank = 0; rank < size; ++rank) plain += value(rank, i);
      if (same_bits(result[i - begin], plain)) ++compared.plain;
    }
}

// What the algorithm makes of `count` elements on this rank, beside its order.
Compared compare_sums(ProcessGroup& group, const Algorithm& algorithm, std::size_t count,
                      int root) {
  const int size = group.size();
  group.set_algorithms(
      AlgorithmSelection(fmt::format("{}={}", name_of(algorithm.collective), algorithm.name)));
  const Numbers input = values_of(group.rank(), count);
  Numbers output(count);
  const auto orders = orders_of_additions(algorithm, size, root);
  const int cut = static_cast<int>(orders.size());
  Compared compared;
  if (algorithm.collective == Collective::reduce_scatter) {
    output.resize(group.block_size(count, group.rank()));
    group.reduce_scatter(std::span(input), std::span(output));
    compare(output, group.block_begin(count, group.rank()), orders,
            Chunks::even(count, size, cut / size), size, compared);
    return compared;
  }
  if (algorithm.collective == Collective::reduce)
    group.reduce(std::span(input), std::span(output), root);
  else
    group.all_reduce(std::span(input), std::span(output));
  if (algorithm.collective == Collective::all_reduce || group.rank() == root)
    compare(output, 0, orders, aligned_chunks(count, cut, sizeof(float)), size, compared);
  return compared;
}

bool adds(const Algorithm& algorithm) {
  return algorithm.collective == Collective::all_reduce ||
         algorithm.collective == Collective::reduce_scatter ||
         algorithm.collective == Collective::reduce;
}

void all_algorithms_follow_their_orders(ProcessGroup& group) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (!adds(algorithm)) continue;
    const int roots = has_root(algorithm.collective) ? group.size() : 1;
    for (int root = 0; root < roots; ++root)
      for (const std::size_t count : {std::size_t{5}, std::size_t{1003}}) {
        const Compared compared = compare_sums(group, algorithm, count, root);
        require(compared.wrong == 0,
                "{} on {} ranks, root {}: {} of {} elements are not the sum in {}",
                algorithm.title(), group.size(), root, compared.wrong, count,
                orders_of_additions(algorithm, group.size(), root)[0]);
      }
  }
}

// RINGSIDE_ORDER=fixed, written down once more: pairs fold, then halves are added.
float fixed_sum(int size, std::size_t i) {
  int parties = 1;
  while (2 * parties <= size) parties *= 2;
  const int pairs = size - parties;
  Numbers sums;
  for (int pair = 0; pair < pairs; ++pair)
    sums.push_back(value(2 * pair, i) + value(2 * pair + 1, i));
  for (int rank = 2 * pairs; rank < size; ++rank) sums.push_back(value(rank, i));
  for (int half = parties / 2; half >= 1; half /= 2)
    for (int party = 0; party < half; ++party) sums[party] += sums[party + half];
  return sums[0];
}

class Environment {
 public:
  Environment(const char* name, const char* text) : name_(name) { ::setenv(name, text, 1); }
  ~Environment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

GroupOptions fixed() {
  const Environment order("RINGSIDE_ORDER", "fixed");
  return group_options_from_environment();
}

void sums_are_fixed(ProcessGroup& group, const Numbers& sums) {
  const std::size_t count = sums.size();
  const Numbers input = values_of(group.rank(), count);
  Numbers output(count);
  const auto check = [&](const char* call, std::size_t begin, std::size_t length) {
    require(std::memcmp(output.data(), sums.data() + begin, length * sizeof(float)) == 0,
            "{} of {} elements on {} ranks has other bits than fixed", call, count, group.size());
  };
  group.all_reduce(std::span(input), std::span(output));
  check("all_reduce", 0, count);
  for (int root = 0; root < group.size(); ++root) {
    group.reduce(std::span(input), std::span(output), root);
    if (group.rank() == root) check("reduce", 0, count);
  }
  output.resize(group.block_size(count, group.rank()));
  group.reduce_scatter(std::span(input), std::span(output));
  check("reduce_scatter", group.block_begin(count, group.rank()), output.size());
}

}  // namespace

TEST_CASE("executors add in the order that the schedule says, bit for bit") {
  for (int size = 2; size <= 9; ++size)
    for (const ExecutorKind kind : {ExecutorKind::simple, ExecutorKind::pipelined}) {
      CAPTURE(size);
      CAPTURE(kind == ExecutorKind::simple);
      CHECK_NOTHROW(run_threads(size, all_algorithms_follow_their_orders, options_with(kind)));
    }
}

TEST_CASE("executors add in the order that the schedule says over shm and tcp") {
  for (const int size : {3, 4}) {
    CAPTURE(size);
    for (const auto& outcome :
         run_shm(size, all_algorithms_follow_their_orders, options_with(ExecutorKind::pipelined)))
      CHECK(outcome == "");
    for (const auto& outcome :
         run_tcp(size, all_algorithms_follow_their_orders, options_with(ExecutorKind::pipelined)))
      CHECK(outcome == "");
  }
}

TEST_CASE("the values of these tests show the order") {
  std::vector<Compared> compared(4);
  run_threads(4, [&](ProcessGroup& group) {
    compared[group.rank()] =
        compare_sums(group, find_algorithm(Collective::all_reduce, "halving_doubling"), 1003, 0);
  });
  for (const Compared& each : compared) CHECK(each.plain < 700);  // of 1003: the plain sums
}

TEST_CASE("RINGSIDE_ORDER=fixed gives the same bits for every length, transport and executor") {
  for (const int size : {2, 3, 4, 5, 7, 8, 9})
    for (const std::size_t count : {1, 2, 7, 1000, 4099, 1000000}) {
      if (count > 4099 && size != 3 && size != 4) continue;
      CAPTURE(size);
      CAPTURE(count);
      Numbers sums(count);
      for (std::size_t i = 0; i < count; ++i) sums[i] = fixed_sum(size, i);
      for (const ExecutorKind kind : {ExecutorKind::simple, ExecutorKind::pipelined}) {
        GroupOptions options = fixed();
        options.executor.kind = kind;
        on_every_transport(
            size, [&](ProcessGroup& group) { sums_are_fixed(group, sums); }, options);
      }
    }
}

TEST_CASE("RINGSIDE_ORDER=fixed is the tree of its page, and sub-groups have it too") {
  const auto order = orders_of_additions(
      fixed().algorithms.choose(Collective::all_reduce, 1, DataType::fp32, 7), 7);
  for (const auto& chunk : order) CHECK(chunk == "(((0+1)+(4+5))+((2+3)+6))");
  run_threads(
      4,
      [](ProcessGroup& group) {
        ProcessGroup half = group.split(group.rank() / 2, group.rank());
        CHECK(half.algorithm_for(Collective::reduce, 1, DataType::fp32).name == "halving");
      },
      fixed());
}

TEST_CASE("RINGSIDE_ORDER beside RINGSIDE_ALGORITHM, and with another value") {
  const auto text = [] {
    try {
      group_options_from_environment();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  {
    const Environment order("RINGSIDE_ORDER", "ring");
    CHECK(text() ==
          "RINGSIDE_ORDER is 'ring', but the only order to ask for is fixed; without it "
          "each call adds as its algorithm does");
  }
  const Environment order("RINGSIDE_ORDER", "fixed");
  {
    const Environment algorithm("RINGSIDE_ALGORITHM", "all_reduce=ring");
    CHECK(text() ==
          "RINGSIDE_ORDER=fixed adds by all_reduce=halving_doubling, but all_reduce=ring is "
          "forced: leave one of the two out");
  }
  const Environment algorithm("RINGSIDE_ALGORITHM", "reduce=halving,all_gather=bruck");
  CHECK(text() == "no error");
}
