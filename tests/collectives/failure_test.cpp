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
  options.algorithms = AlgorithmChoice("all_reduce=ring");  // in which every rank needs every other
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

TEST_CASE("ranks that disagree on type or op or order name both calls") {
  struct Case {
    std::function<void(ProcessGroup&)> body;
    const char *one, *other;
  };
  const std::vector<Case> cases = {
      {[](ProcessGroup& g) {
         std::vector<std::int32_t> whole(64);
         std::vector<float> real(64);
         g.rank() == 2 ? g.all_reduce(std::span(whole)) : g.all_reduce(std::span(real));
       }, "all_reduce of 64 int32 (sum, ring)", "all_reduce of 64 fp32 (sum, ring)"},
      {[](ProcessGroup& g) {
         std::vector<float> v(64);
         g.all_reduce(std::span(v), g.rank() == 2 ? ReduceOp::max : ReduceOp::sum);
       }, "all_reduce of 64 fp32 (max, ring)", "all_reduce of 64 fp32 (sum, ring)"},
      {[](ProcessGroup& g) {
         std::vector<float> v(64);
         if (g.rank() == 2) g.barrier();
         g.all_reduce(std::span(v));
         if (g.rank() != 2) g.barrier();
       }, "makes call #1, barrier", "makes call #1, all_reduce of 64 fp32 (sum, ring)"},
  };
  for (const Case& c : cases)
    over_every_transport(3, c.body, patience(20), [&](const std::vector<std::string>& outcomes) {
      int named = 0;
      for (const auto& text : outcomes) {
        CAPTURE(text);
        CHECK(contains(text, "the ranks disagree: rank "));
        named += contains(text, c.one) && contains(text, c.other);
      }
      CHECK(named == 3);
    });
}

TEST_CASE("ranks that disagree on the root and wait in a circle find it out within a second") {
  // Rank 1 waits for rank 0, which waits for rank 2 to take its message, which waits for rank 1: no two of them ever exchange a message.
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(64);
    group.broadcast(std::span(x), group.rank() == 2 ? 1 : 0);
  };
  const auto start = Clock::now();
  for (const auto& text : outcomes_over_threads(3, body, patience(20))) {
    CAPTURE(text);
    CHECK(contains(text, "the ranks disagree: rank "));
    CHECK(contains(text, "broadcast of 64 fp32 from rank 1 (binomial)"));
    CHECK(contains(text, "broadcast of 64 fp32 from rank 0 (binomial)"));
  }
  CHECK(seconds_since(start) < 5);
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
