// The simple executor against the pipelined one: every algorithm over every transport in worlds of
// 2, 3 and 4 gives the same bits.
#include <algorithm>
#include <cstring>

#include "base/random.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/execution/executor_options.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

using Numbers = std::vector<float>;
using Results = std::vector<Numbers>;

GroupOptions with(ExecutorKind kind) {
  GroupOptions options;
  options.executor.kind = kind;
  options.executor.slice_bytes = 256;
  options.executor.slices_per_segment = 2;
  options.executor.timeout = Seconds(30);
  return options;
}

// Numbers whose sums round, so that another order of addition gives other bits.
Numbers input_of(int rank, std::size_t count) {
  Numbers values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(random_normal(5, static_cast<std::uint64_t>(rank), i));
  return values;
}

// What one call leaves in this rank's memory: the output, or in place the whole buffer.
void add_result(ProcessGroup& group, const Algorithm& algorithm, std::size_t about, int root,
                bool in_place, Results& results) {
  const bool equal_blocks = algorithm.collective == Collective::gather ||
                            algorithm.collective == Collective::scatter ||
                            algorithm.collective == Collective::all_to_all;
  const std::size_t count = equal_blocks ? about / group.size() * group.size() : about;
  const std::size_t begin = group.block_begin(count, group.rank());
  const std::size_t length = group.block_size(count, group.rank());
  const bool is_root = group.rank() == root;
  const Numbers untouched = input_of(group.rank(), count);
  Numbers input = untouched, separate(count, 77);
  Numbers& output = in_place ? input : separate;
  const std::span in(input), out(output);
  switch (algorithm.collective) {
    case Collective::all_reduce:
      group.all_reduce(in, out, ReduceOp::avg);
      break;
    case Collective::reduce_scatter:
      group.reduce_scatter(in, out.subspan(begin, length));
      break;
    case Collective::all_gather:
      group.all_gather(in.subspan(begin, length), out);
      break;
    case Collective::broadcast:
      group.broadcast(in, root);
      break;
    case Collective::reduce:
      group.reduce(in, out, root);
      break;
    case Collective::gather:
      group.gather(in.subspan(begin, length), out, root);
      break;
    case Collective::scatter:
      group.scatter(in, out.subspan(begin, length), root);
      break;
    case Collective::all_to_all:
      group.all_to_all(in, out);
      break;
    default:
      group.barrier();
  }
  // In place an algorithm may leave partial sums in the chunks that nobody asks for.
  const bool one_block = algorithm.collective == Collective::reduce_scatter ||
                         algorithm.collective == Collective::scatter;
  const bool has_result = !has_root(algorithm.collective) || is_root ||
                          algorithm.collective == Collective::broadcast ||
                          algorithm.collective == Collective::scatter;
  if (!has_result) return;
  results.push_back(one_block ? Numbers(output.begin() + begin, output.begin() + begin + length)
                              : output);
  if (!in_place && algorithm.collective != Collective::broadcast)
    require(std::equal(input.begin(), input.begin() + count, untouched.begin()),
            "{} has changed its input", algorithm.title());
}

Results results_of(ProcessGroup& group) {
  Results results;
  for (const Algorithm& algorithm : all_algorithms()) {
    group.set_algorithms(
        AlgorithmSelection(fmt::format("{}={}", name_of(algorithm.collective), algorithm.name)));
    const int roots = has_root(algorithm.collective) ? group.size() : 1;
    for (const std::size_t count : {std::size_t(0), std::size_t(3), std::size_t(1003)})
      for (int root = 0; root < roots; ++root)
        for (const bool in_place : {false, true})
          add_result(group, algorithm, count, root, in_place, results);
  }
  return results;
}

using World = std::vector<std::string> (*)(int size, const Body& body, const GroupOptions& options);

std::vector<std::string> run_over_threads(int size, const Body& body, const GroupOptions& options) {
  run_threads(size, body, options);
  return {};
}

std::vector<Results> all_results(World world, int size, ExecutorKind kind) {
  std::vector<Results> results(size);
  for (const auto& outcome : world(
           size, [&](ProcessGroup& group) { results[group.rank()] = results_of(group); },
           with(kind)))
    CHECK(outcome == "");
  return results;
}

bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("the simple and the pipelined executor give the same bits") {
  const std::pair<const char*, World> worlds[] = {
      {"threads", run_over_threads}, {"shm", run_shm}, {"tcp", run_tcp}};
  for (const auto& [name, world] : worlds)
    for (const int size : {2, 3, 4}) {
      CAPTURE(name);
      CAPTURE(size);
      const auto simple = all_results(world, size, ExecutorKind::simple);
      const auto pipelined = all_results(world, size, ExecutorKind::pipelined);
      for (int rank = 0; rank < size; ++rank) {
        REQUIRE(simple[rank].size() == pipelined[rank].size());
        REQUIRE(simple[rank].size() > 50);
        for (std::size_t i = 0; i < simple[rank].size(); ++i) {
          CAPTURE(i);
          CHECK(same_bits(simple[rank][i], pipelined[rank][i]));
        }
      }
    }
}

TEST_CASE("ranks with different executors say so, however short the message is") {
  for (const std::size_t count : {std::size_t(1), std::size_t(100000)}) {
    const auto world = make_threads_world(2);
    const auto outcomes = on_threads(2, [&](int rank) {
      const auto kind = rank == 0 ? ExecutorKind::simple : ExecutorKind::pipelined;
      ProcessGroup group(make_schedule_backend(connect_threads(world, rank), with(kind).executor));
      std::vector<float> x(count);
      group.all_reduce(std::span(x));
    });
    for (const auto& text : outcomes) {
      CAPTURE(text);
      const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
      CHECK((says("runs the simple executor") || says("runs the simple one")));
      CHECK((says("runs the pipelined executor") || says("runs the pipelined one")));
      CHECK(says("set RINGSIDE_EXECUTOR to the same value on every rank"));
    }
  }
}

TEST_CASE("RINGSIDE_EXECUTOR names an executor, or is refused") {
  const auto kind_of = [](const char* name) {
    ::setenv("RINGSIDE_EXECUTOR", name, 1);
    try {
      const ExecutorKind kind = executor_from_environment();
      ::unsetenv("RINGSIDE_EXECUTOR");
      return kind;
    } catch (...) {
      ::unsetenv("RINGSIDE_EXECUTOR");
      throw;
    }
  };
  CHECK(kind_of("simple") == ExecutorKind::simple);
  CHECK(kind_of("pipelined") == ExecutorKind::pipelined);
  CHECK(kind_of("") == ExecutorKind::pipelined);
  CHECK_THROWS_WITH(kind_of("fast"), "RINGSIDE_EXECUTOR must be pipelined or simple, not 'fast'");
}

// Not only one that fails with an Error.
TEST_CASE("a rank that fails with any exception tells every other rank") {
  const auto world = make_threads_world(4);
  const auto outcomes = on_threads(4, [&](int rank) {
    GroupOptions options = with(ExecutorKind::pipelined);
    // Three chunks pass through each rank, and there is no scratch memory for such slices.
    if (rank == 2) options.executor.slice_bytes = std::size_t{1} << 61;
    ProcessGroup group(make_schedule_backend(connect_threads(world, rank), options.executor));
    group.set_algorithms(AlgorithmSelection("reduce_scatter=ring"));
    std::vector<float> input(16), output(4);
    group.reduce_scatter(std::span(input), std::span(output));
  });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(text.find("rank 2 failed in call #1, reduce_scatter of 16 fp32 (sum, ring), step 0 (of 0 "
                    "to 2)") != std::string::npos);
  }
}
