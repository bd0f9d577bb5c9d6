// Ranks that do not make the same calls: every rank names both calls.
#include <functional>
#include <string>
#include <vector>

#include "tests/collectives/failures.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

TEST_CASE("ranks that disagree on the count name both calls") {
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(group.rank() == 1 ? 200 : 100);
    group.all_reduce(std::span(x));
  };
  over_every_transport(3, body, patience(20), [](const std::vector<std::string>& outcomes) {
    for (const auto& text : outcomes) {
      CAPTURE(text);
      CHECK(contains(text, "the ranks disagree: rank "));
      CHECK(contains(text, "all_reduce of 100 fp32 (sum, ring)"));
      CHECK(contains(text, "all_reduce of 200 fp32 (sum, ring)"));
      CHECK(contains(text, "Every rank must make the same calls in the same order"));
    }
  });
}

namespace {

// Rank 2 calls `other`, all others call `one`. Every rank that ends with an error names both calls
// within a second.
struct Mismatch {
  std::string kind;
  std::function<void(ProcessGroup&)> one, other;
  const char *says_one, *says_other;
};

std::function<void(ProcessGroup&)> broadcast_from(int root, std::size_t count) {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmSelection("broadcast=binomial"));
    std::vector<float> x(count);
    group.broadcast(std::span(x), root);
  };
}

std::function<void(ProcessGroup&)> reduce_to(int root) {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmSelection("reduce=binomial"));
    std::vector<float> x(64), y(64);
    group.reduce(std::span(x), std::span(y), root);
  };
}

void barrier(ProcessGroup& group) {
  group.barrier();
}

const std::vector<Mismatch> mismatches = {
    {"collective", all_reduce_of<float>(64), barrier,
     "makes call #1, all_reduce of 64 fp32 (sum, ring)", "makes call #1, barrier"},
    {"type", all_reduce_of<float>(64), all_reduce_of<std::int32_t>(64),
     "all_reduce of 64 fp32 (sum, ring)", "all_reduce of 64 int32 (sum, ring)"},
    {"count", all_reduce_of<float>(64), all_reduce_of<float>(65),
     "all_reduce of 64 fp32 (sum, ring)", "all_reduce of 65 fp32 (sum, ring)"},
    {"long count", all_reduce_of<float>(3000000), all_reduce_of<float>(3000001),
     "all_reduce of 3000000 fp32", "all_reduce of 3000001 fp32"},
    {"reduce op", all_reduce_of<float>(64), all_reduce_of<float>(64, ReduceOp::max),
     "64 fp32 (sum, ring)", "64 fp32 (max, ring)"},
    {"algorithm", all_reduce_of<float>(64), all_reduce_of<float>(64, ReduceOp::sum, "naive"),
     "64 fp32 (sum, ring)", "64 fp32 (sum, naive)"},
    {"type of a few bytes", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"),
     all_reduce_of<std::int32_t>(8, ReduceOp::sum, "one_shot"),
     "all_reduce of 8 fp32 (sum, one_shot)", "all_reduce of 8 int32 (sum, one_shot)"},
    {"few bytes or none", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"),
     all_reduce_of<float>(0, ReduceOp::sum, "one_shot"), "all_reduce of 8 fp32 (sum, one_shot)",
     "all_reduce of 0 fp32 (sum, one_shot)"},
    {"few bytes or many", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"),
     all_reduce_of<float>(8000, ReduceOp::sum, "one_shot"), "all_reduce of 8 fp32 (sum, one_shot)",
     "all_reduce of 8000 fp32 (sum, one_shot)"},
    {"algorithm for a few bytes", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"),
     all_reduce_of<float>(8), "all_reduce of 8 fp32 (sum, one_shot)",
     "all_reduce of 8 fp32 (sum, ring)"},
    {"few bytes or a barrier", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"), barrier,
     "makes call #1, all_reduce of 8 fp32 (sum, one_shot)", "makes call #1, barrier"},
    {"root", broadcast_from(0, 64), broadcast_from(1, 64),
     "makes call #1, broadcast of 64 fp32 from rank 0 (binomial)",
     "makes call #1, broadcast of 64 fp32 from rank 1 (binomial)"},
    {"root of much", broadcast_from(0, 5000000), broadcast_from(1, 5000000),
     "broadcast of 5000000 fp32 from rank 0 (binomial)",
     "broadcast of 5000000 fp32 from rank 1 (binomial)"},
    {"root of a reduce", reduce_to(0), reduce_to(1), "reduce of 64 fp32 to rank 0 (sum, binomial)",
     "reduce of 64 fp32 to rank 1 (sum, binomial)"},
};

// Checks the texts of the ranks that ended with an error. Returns how many did.
int named_by(const std::vector<std::string>& outcomes, const Mismatch& mismatch) {
  int ranks = 0;
  for (const auto& text : outcomes) {
    if (text.empty()) continue;
    ++ranks;
    CAPTURE(text);
    CHECK(contains(text, "the ranks disagree: rank "));
    CHECK(contains(text, mismatch.says_one));
    CHECK(contains(text, mismatch.says_other));
    CHECK(contains(text, "Every rank must make the same calls in the same order"));
  }
  return ranks;
}

}  // namespace

TEST_CASE("every rank names both calls within a second whatever the ranks disagree on") {
  for (const Mismatch& mismatch : mismatches) {
    CAPTURE(mismatch.kind);
    const auto body = [&](ProcessGroup& group) {
      const auto start = Clock::now();
      try {
        (group.rank() == 2 ? mismatch.other : mismatch.one)(group);
        // A rank whose call ended before it could notice the mismatch learns of it here.
        for (int i = 0; i < 3; ++i) all_reduce_of<double>(10)(group);
      } catch (const Error&) {
        // One second, and time for a busy machine; the deadline is 20 s.
        require(seconds_since(start) < 10, "it took {:.1f} s", seconds_since(start));
        throw;
      }
    };
    over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) {
      CHECK(named_by(outcomes, mismatch) == 3);
    });
  }
}

TEST_CASE("ranks that still wait learn of a disagreement in the last call of the others") {
  for (const Mismatch& mismatch : mismatches) {
    CAPTURE(mismatch.kind);
    const auto body = [&](ProcessGroup& group) {
      (group.rank() == 2 ? mismatch.other : mismatch.one)(group);
    };
    over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) {
      CHECK(named_by(outcomes, mismatch) >= 1);
    });
  }
}

TEST_CASE(
    "the first call in which the ranks differ is named rather than a later one in which it shows") {
  const auto body = [](ProcessGroup& group) {
    all_reduce_of<float>(10)(group);
    broadcast_from(group.rank() == 2 ? 1 : 0, 64)(group);
    for (int i = 0; i < 20; ++i) broadcast_from(0, 64)(group);
    all_reduce_of<float>(10)(group);
  };
  const Mismatch mismatch{"root",
                          {},
                          {},
                          "makes call #2, broadcast of 64 fp32 from rank 0",
                          "makes call #2, broadcast of 64 fp32 from rank 1"};
  over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) {
    CHECK(named_by(outcomes, mismatch) == 3);
  });
}

TEST_CASE("ranks that disagree on the order name both calls") {
  const auto body = [](ProcessGroup& group) {
    if (group.rank() == 2) group.barrier();
    all_reduce_of<float>(64)(group);
    if (group.rank() != 2) group.barrier();
  };
  const Mismatch mismatch{"order",
                          {},
                          {},
                          "makes call #1, barrier",
                          "makes call #1, all_reduce of 64 fp32 (sum, ring)"};
  over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) {
    CHECK(named_by(outcomes, mismatch) == 3);
  });
}
