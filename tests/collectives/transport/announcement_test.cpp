// Direct calls over shared memory: announcements instead of messages. The protocol is tested in
// one_sided/protocol_test.cpp, disagreements of ranks in failure_test.cpp.
#include "collectives/transport/shm/announcement.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/random.hpp"
#include "collectives/algorithms/aligned_chunks.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/selection/cost_model.hpp"
#include "collectives/transport/shm/shm.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

GroupOptions one_shot(ExecutorKind kind = ExecutorKind::pipelined, double timeout = 20) {
  GroupOptions options;
  options.executor.kind = kind;
  options.executor.timeout = Seconds(timeout);
  options.algorithms = AlgorithmSelection("all_reduce=one_shot");
  return options;
}

// The bytes of a call's result, for numbers whose sums round.
template <class T>
std::string sum_of(ProcessGroup& group, std::size_t count, ReduceOp op, bool in_place, int call) {
  std::vector<T> mine(count), sum(count);
  for (std::size_t i = 0; i < count; ++i)
    mine[i] = static_cast<T>(8 * random_normal(static_cast<std::uint64_t>(call),
                                               static_cast<std::uint64_t>(group.rank()), i));
  group.all_reduce(std::span(mine), in_place ? std::span(mine) : std::span(sum), op);
  const std::vector<T>& result = in_place ? mine : sum;
  return {reinterpret_cast<const char*>(result.data()), count * sizeof(T)};
}

std::string many_sums(ProcessGroup& group) {
  // As many as lie beside the number, one more, and more than one announcement holds.
  const std::size_t most = sizeof Announcement().payload, long_call = ShmOptions{}.announced_bytes;
  std::string bytes;
  int call = 0;
  for (const std::size_t count : {std::size_t(1), std::size_t(12), std::size_t(13), most / 4,
                                  most / 4 + 1, long_call / 4 + 5})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::max})
      for (const bool in_place : {false, true}) {
        bytes += sum_of<float>(group, count, op, in_place, ++call);
        bytes += sum_of<double>(group, count / 2, op, in_place, ++call);
        if (op != ReduceOp::avg) bytes += sum_of<std::int32_t>(group, count, op, in_place, ++call);
        if (call % 3 == 0) group.barrier();  // messages between the announcements
      }
  return bytes;
}

std::vector<std::string> results_over_shm(int size, ExecutorKind kind) {
  std::vector<std::string> results(static_cast<std::size_t>(size));
  for (const auto& outcome : run_shm(
           size,
           [&](ProcessGroup& group) {
             results[static_cast<std::size_t>(group.rank())] = many_sums(group);
           },
           one_shot(kind)))
    CHECK(outcome == "");
  return results;
}

}  // namespace

TEST_CASE("announced sums have the bits of the schedule, on every rank") {
  for (const int size : {2, 3, 4, 6}) {
    CAPTURE(size);
    const auto announced = results_over_shm(size, ExecutorKind::pipelined),
               scheduled = results_over_shm(size, ExecutorKind::simple);
    REQUIRE(announced[0].size() > 1000);
    for (int r = 0; r < size; ++r) {
      CHECK(announced[static_cast<std::size_t>(r)] == scheduled[static_cast<std::size_t>(r)]);
      CHECK(announced[static_cast<std::size_t>(r)] == announced[0]);
    }
  }
}

namespace {

// The bytes of the results of direct calls, of which some take several segments.
std::string direct_calls(ProcessGroup& group) {
  const auto size = static_cast<std::size_t>(group.size());
  const auto numbers = [&](std::size_t count, std::uint64_t call) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] =
          static_cast<float>(random_normal(call, static_cast<std::uint64_t>(group.rank()), i));
    return values;
  };
  std::string bytes;
  const auto keep = [&](const std::vector<float>& values) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  std::uint64_t call = 0;
  for (const std::size_t count : {std::size_t(1), size - 1, size, 5 * size + 1, std::size_t(1024),
                                  std::size_t(10'007), std::size_t(1'000'003)})
    for (const bool in_place : {false, true}) {
      const std::size_t each =
          count / size + (count % size > static_cast<std::size_t>(group.rank()));
      std::size_t before = 0;
      for (std::size_t r = 0; r < static_cast<std::size_t>(group.rank()); ++r)
        before += count / size + (count % size > r);
      auto all = numbers(count, ++call), sum = numbers(count, ++call), mine = numbers(each, ++call);
      group.all_reduce(std::span(all), std::span(in_place ? all : sum), ReduceOp::avg);
      keep(in_place ? all : sum);
      group.reduce_scatter(std::span<const float>(all),
                           in_place ? std::span(all).subspan(before, each) : std::span(mine));
      keep(in_place ? std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(before),
                                         all.begin() + static_cast<std::ptrdiff_t>(before + each))
                    : mine);
      group.all_gather(in_place ? std::span<const float>(all).subspan(before, each)
                                : std::span<const float>(mine),
                       std::span(all));
      keep(all);
      auto blocks = numbers(count / size * size, ++call), others = blocks;
      group.all_to_all(std::span<const float>(blocks), std::span(in_place ? blocks : others));
      keep(in_place ? blocks : others);
      if (call % 3 == 0) group.barrier();
    }
  return bytes;
}

}  // namespace

TEST_CASE("direct calls that are announced have the bits of messages, whole and in segments") {
  GroupOptions messages;
  messages.algorithms = AlgorithmSelection(
      "all_reduce=two_shot,reduce_scatter=direct,all_gather=direct,all_to_all=pairwise");
  GroupOptions announced = messages, in_segments = messages;
  messages.executor.announces = false;
  in_segments.executor.slice_bytes = 1000;
  for (const int size : {2, 3, 4, 6}) {
    CAPTURE(size);
    std::vector<std::vector<std::string>> results;
    for (const GroupOptions& options : {messages, announced, in_segments}) {
      auto& of_ranks = results.emplace_back(static_cast<std::size_t>(size));
      const auto body = [&](ProcessGroup& group) {
        of_ranks[static_cast<std::size_t>(group.rank())] = direct_calls(group);
      };
      for (const auto& outcome : run_shm(size, body, options)) CHECK(outcome == "");
    }
    CHECK(results[0][0].size() > 1'000'000);
    CHECK(results[1] == results[0]);
    CHECK(results[2] == results[0]);
  }
}

TEST_CASE("thousands of rounds in which ranks come early and late") {
  const auto body = [](ProcessGroup& group) {
    const int size = group.size();
    for (int round = 0; round < 3000; ++round) {
      const auto roll = random_below(500, 9, static_cast<std::uint64_t>(group.rank()),
                                     static_cast<std::uint64_t>(round));
      if (roll == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // others sleep
      if (roll < 20) std::this_thread::yield();
      std::int64_t x[3] = {group.rank(), round, 1};
      group.all_reduce(std::span<std::int64_t>(x));
      require(x[0] == size * (size - 1) / 2 && x[1] == size * round && x[2] == size,
              "round {}: {} {} {}", round, x[0], x[1], x[2]);
    }
  };
  for (const int size : {2, 3, 4})
    for (const auto& outcome : run_shm(size, body, one_shot())) CHECK(outcome == "");
}

TEST_CASE(
    "over shared memory a few bytes select one_shot, and sub-groups announce among themselves") {
  const auto body = [](ProcessGroup& group) {
    const auto name = [&](std::size_t count) {
      return group.algorithm_for(Collective::all_reduce, count, DataType::fp32).name;
    };
    require(name(1) == "one_shot" && name(128) == "one_shot", "{}, {}", name(1), name(128));
    ProcessGroup part = group.split(group.rank() % 2);
    float x = 1, y = 1;
    for (int i = 0; i < 100; ++i) {
      part.all_reduce(std::span(&x, 1), ReduceOp::max);
      group.all_reduce(std::span(&y, 1), ReduceOp::max);
    }
    part.all_reduce(std::span(&x, 1));
    group.all_reduce(std::span(&y, 1));
    require(x == static_cast<float>(part.size()) && y == static_cast<float>(group.size()),
            "{} of {}, {} of {}", x, part.size(), y, group.size());
  };
  for (const int size : {2, 3, 4})
    for (const auto& outcome : run_shm(size, body)) CHECK(outcome == "");
}

TEST_CASE("an announcement counts as a message to every other rank") {
  for (const int size : {2, 3, 4}) {
    const auto body = [&](ProcessGroup& group) {
      float x[5] = {};
      const Traffic before = group.traffic();
      group.all_reduce(std::span<float>(x));
      const Traffic after = group.traffic();
      const auto others = static_cast<std::uint64_t>(size - 1);
      require(after.messages_sent - before.messages_sent == others &&
                  after.payload_bytes_sent - before.payload_bytes_sent == others * sizeof x,
              "{} messages", after.messages_sent - before.messages_sent);
    };
    for (const auto& outcome : run_shm(size, body, one_shot())) CHECK(outcome == "");
  }
}

TEST_CASE("an announcement of parts counts as the bytes that each rank reads") {
  for (const int size : {2, 3, 4}) {
    const auto body = [&](ProcessGroup& group) {
      std::vector<float> x(100'001);
      const Traffic before = group.traffic();
      group.all_reduce(std::span(x));
      const Traffic after = group.traffic();
      const auto schedules =
          make_schedules(find_algorithm(Collective::all_reduce, "two_shot"), size);
      const Cost walked = cost_of(schedules, aligned_chunks(x.size(), size, 4), 4, {});
      const Sent& expected = walked.sent[static_cast<std::size_t>(group.rank())];
      require(after.messages_sent - before.messages_sent == expected.messages &&
                  after.payload_bytes_sent - before.payload_bytes_sent == expected.bytes,
              "{} messages of {} bytes", after.messages_sent - before.messages_sent,
              after.payload_bytes_sent - before.payload_bytes_sent);
    };
    GroupOptions options;
    options.algorithms = AlgorithmSelection("all_reduce=two_shot");
    for (const auto& outcome : run_shm(size, body, options)) CHECK(outcome == "");
  }
}

TEST_CASE("behind an emulated link nothing is announced: a few bytes take their time as messages") {
  GroupOptions options = one_shot();
  options.link = parse_link("1Gbps,20ms");
  const auto body = [](ProcessGroup& group) {
    group.barrier();
    const auto start = Clock::now();
    float x = 1;
    group.all_reduce(std::span(&x, 1));
    require(seconds_since(start) > 0.015, "it took {} s", seconds_since(start));
  };
  for (const auto& outcome : run_shm(2, body, options)) CHECK(outcome == "");
}

TEST_CASE("ranks that wait for the announcement of a rank that has left name it") {
  const auto body = [](ProcessGroup& group) {
    float x = 1;
    group.all_reduce(std::span(&x, 1));
    if (group.rank() == 1) return;
    group.all_reduce(std::span(&x, 1));
  };
  const auto outcomes = run_shm(3, body, one_shot());
  for (const std::size_t rank : {0, 2}) {
    CAPTURE(outcomes[rank]);
    CHECK(contains(outcomes[rank], "rank 1 has left the group, and rank "));
    CHECK(contains(outcomes[rank], "call #2, all_reduce of 1 fp32 (sum, one_shot), step "));
  }
  CHECK(outcomes[1] == "");
}

TEST_CASE("a rank that has left is named in the step in which its part was due") {
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(100'000);
    group.all_reduce(std::span(x));
    if (group.rank() == 1) return;
    group.all_reduce(std::span(x));
  };
  GroupOptions options;
  options.algorithms = AlgorithmSelection("all_reduce=two_shot");
  const auto outcomes = run_shm(3, body, options);
  // Rank 0 waits in the second step, rank 2 in the first: wrap(rank - 1, 3) - 1.
  CHECK(contains(outcomes[0], "call #2, all_reduce of 100000 fp32 (sum, two_shot), step "));
  CHECK(contains(outcomes[0], "rank 1 has left the group, and rank "));
  CHECK(contains(outcomes[2], "rank 1 has left the group, and rank "));
}

TEST_CASE("all ranks name a rank that announces nothing in time") {
  const auto body = [](ProcessGroup& group) {
    float x = 1;
    group.all_reduce(std::span(&x, 1));
    if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    group.all_reduce(std::span(&x, 1));
    // Rank 2 finds what the others announced before they gave up. It learns the cause here.
    group.all_reduce(std::span(&x, 1));
  };
  for (const auto& text : run_shm(4, body, one_shot(ExecutorKind::pipelined, 1))) {
    CAPTURE(text);
    CHECK(contains(text,
                   "rank 2 does not answer: stopped, stuck, or busy outside of the collectives"));
    CHECK(contains(text, "call #2, all_reduce of 1 fp32 (sum, one_shot), step "));
  }
}

TEST_CASE("a rank that gives up ends the announcements that others wait for") {
  const auto body = [](ProcessGroup& group) {
    float x = 1;
    group.all_reduce(std::span(&x, 1));
    if (group.rank() == 2) {
      group.abort("rank 2 gave up: its data file is empty");
      return;
    }
    group.all_reduce(std::span(&x, 1));
  };
  const auto start = Clock::now();
  const auto outcomes = run_shm(3, body, one_shot());
  CHECK(seconds_since(start) < 10);  // not the deadline
  for (const std::size_t rank : {0, 1})
    CHECK(contains(outcomes[rank], "rank 2 gave up: its data file is empty"));
}
