// ProcessGroup::finish(): no rank ends well where the last calls of the ranks went wrong.
#include <string>
#include <vector>

#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// Runs `body`, then finish(), over every transport. Returns the texts of the ranks' exceptions.
std::vector<std::string> outcomes_of(int size, const Body& body) {
  GroupOptions options;
  options.executor.timeout = Seconds(20);
  options.algorithms = AlgorithmSelection("broadcast=binomial,all_gather=ring");
  const Body whole = [&](ProcessGroup& group) {
    body(group);
    group.finish();
  };
  std::vector<std::string> outcomes = run_tcp(size, whole, options);
  for (const auto& outcome : run_shm(size, whole, options)) outcomes.push_back(outcome);
  for (const auto& outcome : on_threads(1, [&](int) { run_threads(size, whole, options); }))
    outcomes.push_back(outcome);
  return outcomes;
}

void broadcast_from(int root, ProcessGroup& group) {
  std::vector<float> x(64);
  group.broadcast(std::span(x), root);
}

}  // namespace

TEST_CASE("finish() returns on every rank when all have made the same calls") {
  for (const int size : {1, 2, 3, 4}) {
    CAPTURE(size);
    const auto outcomes = outcomes_of(size, [](ProcessGroup& group) {
      for (int i = 0; i < 100; ++i) broadcast_from(i % group.size(), group);
      // Sends are no part of what is compared: only two ranks make them.
      std::vector<float> x(1);
      if (group.rank() == 0 && group.size() > 1) group.send(std::span(x), 1);
      if (group.rank() == 1) group.recv(std::span(x), 0);
    });
    for (const auto& outcome : outcomes) CHECK(outcome == "");
  }
}

TEST_CASE("after a wrong root in the last call every rank names both calls") {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const auto outcomes = outcomes_of(size, [](ProcessGroup& group) {
      broadcast_from(0, group);
      broadcast_from(group.rank() == group.size() - 1 ? 1 : 0, group);
    });
    for (const auto& outcome : outcomes) {
      CAPTURE(outcome);
      CHECK(contains(outcome, "the ranks disagree: rank "));
      CHECK(contains(outcome, " makes call #2, broadcast of 64 fp32 from rank 0 (binomial)"));
      CHECK(contains(outcome, " makes call #2, broadcast of 64 fp32 from rank 1 (binomial)"));
    }
  }
}

TEST_CASE("finish() finds calls that ended well on every rank, and differ") {
  // Every rank sends its own data, and receives none: over TCP, nobody waits for anybody.
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    for (const auto& outcome :
         outcomes_of(size, [](ProcessGroup& group) { broadcast_from(group.rank(), group); })) {
      CAPTURE(outcome);
      CHECK(contains(outcome, " makes call #1, broadcast of 64 fp32 from rank "));
      CHECK(contains(outcome, "Every rank must make the same calls in the same order"));
    }
  }
}

TEST_CASE("finish() finds calls that differ between ranks whose messages never meet") {
  // Two ranks each broadcast among themselves, as they may after a split, and use the whole group
  // by mistake. Each odd rank hears its own root. The messages between the pairs are never
  // received:
  //
  //     0 ━━▶ 1     2 ━━▶ 3     4 ━━▶ 5     6 ━━▶ 7     every rank is done
  //     0 ──▶ 2, 4  2 ──▶ 4, 6  4 ──▶ 6, 0  6 ──▶ 0, 2  nobody receives these
  //
  // finish() gathers by a ring: each rank receives from the rank before it, and so meets none of
  // them. Only the calls that it gathers show the mistake.
  for (const int size : {4, 8}) {
    CAPTURE(size);
    const auto outcomes = outcomes_of(size, [](ProcessGroup& group) {
      broadcast_from(0, group);
      broadcast_from(group.rank() / 2 * 2, group);
    });
    for (const auto& outcome : outcomes) {
      CAPTURE(outcome);
      CHECK(contains(outcome, " makes call #2, broadcast of 64 fp32 from rank "));
      CHECK(contains(outcome, "Every rank must make the same calls in the same order"));
    }
  }
}

TEST_CASE("ranks in finish() hear why another rank fails") {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const auto outcomes = outcomes_of(size, [](ProcessGroup& group) {
      group.barrier();
      if (group.rank() != 1) return;
      group.abort("the disk is full");
      fail("the disk is full");
    });
    for (const auto& outcome : outcomes) {
      CAPTURE(outcome);
      CHECK(contains(outcome, "the disk is full"));
    }
  }
}
