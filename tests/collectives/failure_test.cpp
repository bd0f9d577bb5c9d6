// What every rank says when something goes wrong: who, in which call, and nobody is left waiting.
#include <chrono>
#include <thread>

#include "collectives/transport/threads.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

GroupOptions patience(double seconds) {
  GroupOptions options;
  options.executor.timeout = Seconds(seconds);
  return options;
}

// What each rank's body throws, over threads.
std::vector<std::string> outcomes_over_threads(int size, const std::function<void(ProcessGroup&)>& body, const GroupOptions& options) {
  const auto world = make_threads_world(size);
  return on_threads(size, [&](int rank) {
    ProcessGroup group(make_schedule_backend(make_threads_transport(world, rank), options.executor));
    body(group);
  });
}

template <class Check>
void over_every_transport(int size, const std::function<void(ProcessGroup&)>& body, const GroupOptions& options, Check check) {
  {
    INFO("over threads");
    check(outcomes_over_threads(size, body, options));
  }
  {
    INFO("over shm");
    check(run_shm(size, body, options));
  }
  INFO("over tcp");
  check(run_tcp(size, body, options));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

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

// Rank 2 makes `other`, all others `one`; both are named, by every rank that ends with an error, within a second.
struct Mismatch {
  std::string kind;
  std::function<void(ProcessGroup&)> one, other;
  const char *says_one, *says_other;
};

template <Element T>
std::function<void(ProcessGroup&)> all_reduce_of(std::size_t count, ReduceOp op = ReduceOp::sum, const char* algorithm = "ring") {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmChoice(std::string("all_reduce=") + algorithm));
    std::vector<T> x(count);
    group.all_reduce(std::span(x), op);
  };
}

std::function<void(ProcessGroup&)> broadcast_from(int root, std::size_t count) {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmChoice("broadcast=binomial"));
    std::vector<float> x(count);
    group.broadcast(std::span(x), root);
  };
}

std::function<void(ProcessGroup&)> reduce_to(int root) {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmChoice("reduce=binomial"));
    std::vector<float> x(64), y(64);
    group.reduce(std::span<const float>(x), std::span(y), root);
  };
}

void barrier(ProcessGroup& group) { group.barrier(); }

const std::vector<Mismatch> mismatches = {
    {"collective", all_reduce_of<float>(64), barrier, "makes call #1, all_reduce of 64 fp32 (sum, ring)", "makes call #1, barrier"},
    {"type", all_reduce_of<float>(64), all_reduce_of<std::int32_t>(64), "all_reduce of 64 fp32 (sum, ring)", "all_reduce of 64 int32 (sum, ring)"},
    {"count", all_reduce_of<float>(64), all_reduce_of<float>(65), "all_reduce of 64 fp32 (sum, ring)", "all_reduce of 65 fp32 (sum, ring)"},
    {"long count", all_reduce_of<float>(3000000), all_reduce_of<float>(3000001), "all_reduce of 3000000 fp32", "all_reduce of 3000001 fp32"},
    {"reduce op", all_reduce_of<float>(64), all_reduce_of<float>(64, ReduceOp::max), "64 fp32 (sum, ring)", "64 fp32 (max, ring)"},
    {"algorithm", all_reduce_of<float>(64), all_reduce_of<float>(64, ReduceOp::sum, "naive"), "64 fp32 (sum, ring)", "64 fp32 (sum, naive)"},
    {"root", broadcast_from(0, 64), broadcast_from(1, 64), "makes call #1, broadcast of 64 fp32 from rank 0 (binomial)",
     "makes call #1, broadcast of 64 fp32 from rank 1 (binomial)"},
    {"root of much", broadcast_from(0, 5000000), broadcast_from(1, 5000000), "broadcast of 5000000 fp32 from rank 0 (binomial)",
     "broadcast of 5000000 fp32 from rank 1 (binomial)"},
    {"root of a reduce", reduce_to(0), reduce_to(1), "reduce of 64 fp32 to rank 0 (sum, binomial)", "reduce of 64 fp32 to rank 1 (sum, binomial)"},
};

// Checks what the ranks have said, and returns how many have said something.
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

TEST_CASE("whatever it is that ranks disagree on both calls are named by all within a second") {
  for (const Mismatch& mismatch : mismatches) {
    CAPTURE(mismatch.kind);
    const auto body = [&](ProcessGroup& group) {
      const auto start = Clock::now();
      try {
        (group.rank() == 2 ? mismatch.other : mismatch.one)(group);
        for (int i = 0; i < 3; ++i) all_reduce_of<double>(10)(group);  // a rank that was done before it could notice goes on, and hears of it
      } catch (const Error&) {
        require(seconds_since(start) < 3, "it took {:.1f} s", seconds_since(start));  // one, and a busy machine
        throw;
      }
    };
    over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) { CHECK(named_by(outcomes, mismatch) == 3); });
  }
}

TEST_CASE("ranks that disagree in their last call name it to those that still wait") {
  for (const Mismatch& mismatch : mismatches) {
    CAPTURE(mismatch.kind);
    const auto body = [&](ProcessGroup& group) { (group.rank() == 2 ? mismatch.other : mismatch.one)(group); };
    over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) { CHECK(named_by(outcomes, mismatch) >= 1); });
  }
}

TEST_CASE("a disagreement of long ago is named rather than the call in which it shows") {
  const auto body = [](ProcessGroup& group) {
    all_reduce_of<float>(10)(group);
    broadcast_from(group.rank() == 2 ? 1 : 0, 64)(group);
    for (int i = 0; i < 20; ++i) broadcast_from(0, 64)(group);
    all_reduce_of<float>(10)(group);
  };
  const Mismatch mismatch{"root", {}, {}, "makes call #2, broadcast of 64 fp32 from rank 0", "makes call #2, broadcast of 64 fp32 from rank 1"};
  over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) { CHECK(named_by(outcomes, mismatch) == 3); });
}

TEST_CASE("ranks that disagree on the order name both calls") {
  const auto body = [](ProcessGroup& group) {
    if (group.rank() == 2) group.barrier();
    all_reduce_of<float>(64)(group);
    if (group.rank() != 2) group.barrier();
  };
  const Mismatch mismatch{"order", {}, {}, "makes call #1, barrier", "makes call #1, all_reduce of 64 fp32 (sum, ring)"};
  over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) { CHECK(named_by(outcomes, mismatch) == 3); });
}

TEST_CASE("a rank that leaves is named by those that wait for it") {
  const auto body = [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) return;
    std::vector<float> x(1000000);
    group.all_reduce(std::span(x));
  };
  over_every_transport(3, body, patience(20), [](const std::vector<std::string>& outcomes) {
    for (const int rank : {0, 2}) {
      CAPTURE(outcomes[rank]);
      CHECK(contains(outcomes[rank], "rank 1 has left the group, and rank "));
      CHECK(contains(outcomes[rank], "all_reduce of 1000000 fp32 (sum, ring)"));
    }
    CHECK(outcomes[1] == "");
  });
}

TEST_CASE("a rank that gives up tells the others why") {
  const auto body = [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 2) {
      group.abort("rank 2 gave up: its data file is empty");
      fail("its data file is empty");
    }
    std::vector<float> x(1000000);
    for (int i = 0; i < 100; ++i) group.all_reduce(std::span(x));
  };
  over_every_transport(4, body, patience(20), [](const std::vector<std::string>& outcomes) {
    for (const int rank : {0, 1, 3}) {
      CAPTURE(outcomes[rank]);
      CHECK(contains(outcomes[rank], "rank 2 gave up: its data file is empty"));
    }
  });
}

TEST_CASE("a rank that does not come in time is named by all others and they say where they are") {
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(100);
    group.all_reduce(std::span(x));
    if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    group.all_reduce(std::span(x));
  };
  over_every_transport(4, body, patience(1), [](const std::vector<std::string>& outcomes) {
    for (const int rank : {0, 1, 2, 3}) {  // rank 2 too, when it comes at last, hears what happened
      CAPTURE(outcomes[rank]);
      CHECK(contains(outcomes[rank], "rank 2 does not answer: stopped, stuck, or busy outside of the collectives"));
      CHECK(contains(outcomes[rank], "call #2, all_reduce of 100 fp32 (sum, ring)"));
    }
    for (const auto& text : outcomes) CHECK((contains(text, "from rank 2 for 1.0 s") || contains(text, "waits for rank 2 in step 1 of call #2")));
  });
}

TEST_CASE("after a failure every later call fails with the first cause") {
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(group.rank() == 1 ? 200 : 100);
    try {
      group.all_reduce(std::span(x));
    } catch (const Error&) {
    }
    group.barrier();
  };
  over_every_transport(2, body, patience(20), [](const std::vector<std::string>& outcomes) {
    for (const auto& text : outcomes) CHECK(contains(text, "the ranks disagree: rank "));
  });
}

TEST_CASE("run_threads hands on the first cause") {
  CHECK_THROWS_WITH_AS(run_threads(3, [](ProcessGroup& group) {
    if (group.rank() == 1) fail("no more memory");
    group.barrier();
  }), "no more memory", Error);
}
