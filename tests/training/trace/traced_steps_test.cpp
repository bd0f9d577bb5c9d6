// The steps of traced calls: which rank sent what to which, and when.
#include "training/trace/traced_steps.hpp"

#include <array>
#include <map>

#include <fmt/format.h>

#include "tests/collectives/worlds.hpp"
#include "training/trace/trace_file.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;
using namespace ringside::training;

namespace {

RankTrace rank_with(int rank, std::vector<double> calls, std::vector<TracedMessage> messages) {
  RankTrace trace{.rank = rank};
  for (const double start : calls)
    trace.spans.push_back({Trace::Track::communication, Trace::Kind::call, "all_reduce", "", start,
                           start + 10, start, 4});
  trace.messages = std::move(messages);
  return trace;
}

std::string text_of(const TracedStep& s) {
  return fmt::format("{}: {} at {} to {} from {} to {}, {} bytes, call {}", s.step, s.from, s.sent,
                     s.to, s.began, s.arrived, s.bytes, s.call);
}

// Which executor runs the ring, and how large its slices are.
void check_ring(int size, collectives::ExecutorKind kind, std::size_t slice_bytes) {
  GroupOptions options;
  options.executor.kind = kind;
  options.executor.slice_bytes = slice_bytes;
  options.algorithms = collectives::AlgorithmSelection("all_reduce=ring");
  constexpr std::size_t floats_per_chunk = 64;
  const auto p = static_cast<std::size_t>(size);
  const auto chunk_bytes = floats_per_chunk * sizeof(float);
  on_every_transport(
      size,
      [&](ProcessGroup& group) {
        Trace trace;
        group.barrier();  // not recorded
        {
          const Trace::On on(trace);
          std::vector<float> data(p * floats_per_chunk, 1);
          group.all_reduce_async(std::span(data)).wait();  // on the group's own thread
          group.all_reduce(std::span(data));               // on this one
        }
        group.barrier();
        const auto ranks = gather_traces(trace, group);
        if (group.rank() != 0) return;
        const std::vector<TracedStep> steps = traced_steps(ranks);
        std::map<std::pair<int, int>, std::uint64_t> bytes;  // of a rank's call
        std::map<std::pair<int, int>, int> first, last;
        for (const TracedStep& step : steps) {
          const std::pair key(step.to, step.call);
          require(step.from == (step.to + size - 1) % size, "from its left: {}", text_of(step));
          require(step.sent <= step.arrived && step.began <= step.arrived, "{}", text_of(step));
          if (!last.contains(key)) first[key] = step.step;
          last[key] = step.step, bytes[key] += step.bytes;
        }
        require(bytes.size() == 2 * p, "{} calls of all ranks", bytes.size());
        for (const auto& [key, sum] : bytes) {
          require(key.second == 0 || key.second == 1, "call {}", key.second);
          require(sum == 2 * (p - 1) * chunk_bytes, "{} bytes in {} steps", sum, steps.size());
          require(first[key] == 0 && last[key] == 2 * (size - 1) - 1, "steps {} to {}", first[key],
                  last[key]);
        }
        // One segment: each step once. Four slices to a segment, two segments: each step twice.
        const std::size_t segments = slice_bytes == 32 ? 2 : 1;
        require(steps.size() == segments * 2 * 2 * p * (p - 1), "{} steps in {} segments",
                steps.size(), segments);
      },
      options);
}

}  // namespace

TEST_CASE("slices are one step, and segments and calls are several") {
  using M = TracedMessage;
  const std::vector<RankTrace> ranks = {
      rank_with(0, {0.5, 20},
                {M{true, 1, 0, 0, 8, 1}, M{true, 1, 0, 1, 6, 2}, M{true, 1, 1, 0, 4, 5},
                 M{true, 1, 0, 2, 3, 6}, M{true, 1, 0, 0, 9, 21}}),
      rank_with(1, {0.25, 20.5},
                {M{false, 0, 0, 0, 0, 3}, M{false, 0, 0, 0, 0, 4}, M{false, 0, 1, 0, 0, 7},
                 M{false, 0, 0, 0, 0, 8}, M{false, 0, 0, 0, 0, 22}})};
  std::vector<std::string> seen;
  for (const TracedStep& step : traced_steps(ranks)) seen.push_back(text_of(step));
  CHECK(seen == std::vector<std::string>{"0: 0 at 1 to 1 from 0.25 to 4, 14 bytes, call 0",
                                         "1: 0 at 5 to 1 from 4 to 7, 4 bytes, call 0",
                                         "0: 0 at 6 to 1 from 7 to 8, 3 bytes, call 0",
                                         "0: 0 at 21 to 1 from 20.5 to 22, 9 bytes, call 1"});
}

TEST_CASE("messages that do not belong together are not joined") {
  using M = TracedMessage;
  const std::vector<RankTrace> ranks = {rank_with(0, {0}, {M{true, 1, 0, 0, 8, 1}}),
                                        rank_with(1, {0}, {M{false, 0, 3, 0, 0, 2}})};
  CHECK(traced_steps(ranks).empty());
}

TEST_CASE("every step of a ring is traced on every transport by both executors") {
  using enum collectives::ExecutorKind;
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    check_ring(size, pipelined, 64);
    check_ring(size, pipelined, 32);
    check_ring(size, simple, 0);
  }
}

// Over shm these bytes are announced, over threads and tcp they are messages.
TEST_CASE("a one-shot all_reduce is a step from every rank to every other on every transport") {
  GroupOptions options;
  options.algorithms = collectives::AlgorithmSelection("all_reduce=one_shot");
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          Trace trace;
          group.barrier();  // not recorded
          for (int call = 0; call < 5; ++call) {
            const Trace::On on(trace);
            float data[3] = {};
            group.all_reduce(std::span<float>(data));
          }
          group.barrier();
          const auto ranks = gather_traces(trace, group);
          if (group.rank() != 0) return;
          std::map<std::array<int, 3>, int> steps;  // of a call, from a rank, to a rank
          for (const TracedStep& step : traced_steps(ranks)) {
            require(step.bytes == 12 && step.from != step.to, "{}", text_of(step));
            ++steps[{step.call, step.from, step.to}];
          }
          require(steps.size() == static_cast<std::size_t>(5 * size * (size - 1)), "{} steps",
                  steps.size());
        },
        options);
}

TEST_CASE("nothing is recorded on a rank that does not trace") {
  on_every_transport(2, [](ProcessGroup& group) {
    Trace trace;
    std::vector<float> data(100, 1);
    if (group.rank() == 0) {
      const Trace::On on(trace);
      group.all_reduce(std::span(data));
    } else {
      group.all_reduce(std::span(data));
    }
    const auto ranks = gather_traces(trace, group);
    if (group.rank() != 0) return;
    require(!ranks[0].messages.empty() && ranks[1].messages.empty(), "{} and {} messages",
            ranks[0].messages.size(), ranks[1].messages.size());
    require(traced_steps(ranks).empty(), "a step of a rank that has no trace");
  });
}
