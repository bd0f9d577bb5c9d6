// What a Trace records, and on which threads.
#include "base/trace/trace.hpp"

#include <thread>

#include <doctest/doctest.h>

using namespace ringside;

TEST_CASE("without a trace nothing is recorded") {
  CHECK(Trace::here() == nullptr);
  const TracedPhase phase("forward");
  CHECK(Trace::here() == nullptr);
}

TEST_CASE("a phase is a span from construction to destruction") {
  Trace trace;
  {
    const Trace::On on(trace);
    CHECK(Trace::here() == &trace);
    const TracedPhase outer("step");
    const TracedPhase inner("forward");
  }
  CHECK(Trace::here() == nullptr);
  REQUIRE(trace.spans().size() == 2);
  const auto &forward = trace.spans()[0], &step = trace.spans()[1];
  CHECK(forward.name == "forward");
  CHECK(step.name == "step");
  CHECK(name_of(step.track) == std::string("compute"));
  CHECK(name_of(step.kind) == std::string("phase"));
  CHECK(step.start <= forward.start);
  CHECK(forward.start <= forward.end);
  CHECK(forward.end <= step.end);
}

TEST_CASE("each thread has its own trace and may record into another for a while") {
  Trace ours, inner, theirs;
  const Trace::On on(ours);
  std::thread([&] {
    CHECK(Trace::here() == nullptr);
    const Trace::On other(theirs);
    const TracedPhase phase("elsewhere");
  }).join();
  {
    const Trace::On for_a_while(inner);
    const TracedPhase phase("within");
  }
  const TracedPhase phase("after");
  CHECK(Trace::here() == &ours);
  CHECK(ours.spans().empty());  // "after" has not ended
  REQUIRE(inner.spans().size() == 1);
  CHECK(inner.spans()[0].name == "within");
  REQUIRE(theirs.spans().size() == 1);
}

TEST_CASE("any thread may add to a trace") {
  Trace trace;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 500; ++k) {
        trace.add({Trace::Track::communication, Trace::Kind::call, "all_reduce", Clock::now(),
                   Clock::now()});
        trace.add({Clock::now(), {k}});
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(trace.spans().size() == 2000);
  CHECK(trace.memory().size() == 2000);
  CHECK(trace.memory_kinds() == std::vector<std::string>{"held"});
}
