// The traces of all ranks are gathered on one clock and written in Chrome's format.
#include "training/trace/trace_file.hpp"

#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "base/json.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;
using namespace ringside::training;

namespace {

// Two asynchronous calls and a blocking one within a phase: like a step of data parallelism.
void small_step(ProcessGroup& group) {
  const TracedPhase phase("finish gradients");
  std::vector<float> a(1000, 1), b(2000, 1);
  const auto first = group.all_reduce_async(std::span(a), collectives::ReduceOp::sum, "bucket 0");
  const auto second = group.all_reduce_async(std::span(b), collectives::ReduceOp::sum, "bucket 1");
  first.wait(), second.wait();
  double loss = 1;
  group.all_reduce(std::span(&loss, 1));
}

void check_rank(const RankTrace& trace) {
  std::map<std::string, int> seen;
  for (const auto& span : trace.spans) {
    require(span.start >= 0 && span.end >= span.start, "{} from {} to {}", span.name, span.start,
            span.end);
    ++seen[fmt::format("{} {}: {}{}{}", name_of(span.track), name_of(span.kind), span.name,
                       span.about.empty() ? "" : " ", span.about)];
    if (span.kind != Trace::Kind::call) continue;
    require(span.queued >= 0 && span.queued <= span.start, "queued at {}, started at {}",
            span.queued, span.start);
    require(span.bytes == (span.about == "bucket 0"   ? 4000u
                           : span.about == "bucket 1" ? 8000u
                                                      : 8u),
            "{} bytes", span.bytes);
  }
  const std::map<std::string, int> expected = {{"compute phase: finish gradients", 1},
                                               {"compute wait: wait for all_reduce bucket 0", 1},
                                               {"compute wait: wait for all_reduce bucket 1", 1},
                                               {"compute wait: wait for all_reduce", 1},
                                               {"communication call: all_reduce bucket 0", 1},
                                               {"communication call: all_reduce bucket 1", 1},
                                               {"communication call: all_reduce", 1}};
  std::string text;
  for (const auto& [name, count] : seen) text += fmt::format("{} x {}; ", count, name);
  require(seen == expected, "{}", text);
}

}  // namespace

TEST_CASE("rank 0 gets the spans of all ranks on one clock") {
  for (const int size : {1, 2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      Trace trace;
      group.barrier();  // not recorded
      {
        const Trace::On on(trace);
        small_step(group);
      }
      group.barrier();
      const auto ranks = gather_traces(trace, group);
      require(ranks.size() == (group.rank() == 0 ? static_cast<std::size_t>(group.size()) : 0),
              "{} traces", ranks.size());
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        require(ranks[r].rank == static_cast<int>(r), "trace {} is of rank {}", r, ranks[r].rank);
        check_rank(ranks[r]);
      }
    });
}

TEST_CASE("different clocks are aligned by round trips") {
  on_every_transport(3, [](ProcessGroup& group) {
    Trace trace;
    group.barrier();
    const auto now = Clock::now();
    trace.add({Trace::Track::compute, Trace::Kind::op, "at the same time", now,
               now + std::chrono::milliseconds(1)});
    const auto estimated = gather_traces(trace, group, true);
    const auto shared = gather_traces(trace, group);
    for (std::size_t r = 0; r < estimated.size(); ++r) {
      const double apart = std::abs(estimated[r].spans.at(0).start - shared[r].spans.at(0).start);
      require(apart < 0.01, "rank {}: {} s apart", r, apart);
    }
  });
}

TEST_CASE("Chrome's format names every rank and track and keeps all data of a call") {
  RankTrace trace{.rank = 1,
                  .spans = {},
                  .memory = {{0.5, {1'000'000, 2'000'000}}},
                  .memory_kinds = {"parameters", "gradients"}};
  trace.spans.push_back({Trace::Track::compute, Trace::Kind::phase, "backward", "", 0, 1});
  trace.spans.push_back({Trace::Track::communication, Trace::Kind::call, "all_reduce",
                         "bucket \"0\"", 0.25, 0.75, 0.125, 4000});
  const Json json = Json::parse(chrome_trace({trace}).dump());
  std::set<std::string> names;
  int spans = 0;
  for (const auto& event : json.at("traceEvents")) {
    const std::string kind = event.at("ph");
    if (kind == "M" && event.at("name") == "thread_name") names.insert(event.at("args").at("name"));
    if (kind == "M" && event.at("name") == "process_name")
      CHECK(event.at("args").at("name") == "rank 1");
    if (kind == "X") ++spans;
  }
  CHECK(names == std::set<std::string>{"compute", "communication"});
  CHECK(spans == 2);
  const auto& call = json.at("traceEvents").at(7);
  CHECK(call.at("pid") == 1);
  CHECK(call.at("tid") == 1);
  CHECK(call.at("ts") == 250000);
  CHECK(call.at("dur") == 500000);
  CHECK(call.at("args").at("data") == "bucket \"0\"");
  CHECK(call.at("args").at("bytes") == 4000);
  CHECK(call.at("args").at("queued_us") == 125000);
  const auto& memory = json.at("traceEvents").at(8);
  CHECK(memory.at("ph") == "C");
  CHECK(memory.at("args").at("gradients") == 2);
}

TEST_CASE("a call of the trace contains its steps, with an arrow from each sender") {
  std::vector<RankTrace> ranks;
  for (const int number : {0, 1}) {
    RankTrace& trace = ranks.emplace_back();
    trace.rank = number;
    trace.spans.push_back(
        {Trace::Track::communication, Trace::Kind::call, "broadcast", "", 1, 4, 1, 8});
  }
  ranks[0].messages.push_back({true, 1, 0, 0, 8, 2});
  ranks[1].messages.push_back({false, 0, 0, 0, 0, 3});
  const Json with = chrome_trace(ranks);
  std::vector<Json> events;
  for (const Json& event : with.at("traceEvents"))
    if (event.at("name") == "broadcast step 0") events.push_back(event);
  REQUIRE(events.size() == 3);
  CHECK(events[0].at("ph") == "X");
  CHECK(events[0].at("pid") == 1);
  CHECK(events[0].at("ts") == doctest::Approx(1e6));
  CHECK(events[0].at("dur") == doctest::Approx(2e6));
  CHECK(events[0].at("args") == Json{{"from_rank", 0}, {"bytes", 8}});
  CHECK(events[1].at("ph") == "s");
  CHECK(events[1].at("pid") == 0);
  CHECK(events[1].at("ts") == doctest::Approx(2e6));
  CHECK(events[2].at("ph") == "f");
  CHECK(events[2].at("id") == events[1].at("id"));
  // Within the step: a viewer binds the arrow to the span around its time.
  CHECK(events[2].at("ts") < 3e6);
  CHECK(events[2].at("ts") > 2.99e6);
  // On a mesh a call is of some ranks only, so a step cannot be told from another group's.
  for (RankTrace& trace : ranks) trace.coordinates = fmt::format("dp={}", trace.rank);
  const Json on_a_mesh = chrome_trace(ranks);
  for (const Json& event : on_a_mesh.at("traceEvents")) {
    CHECK(event.at("ph") != "f");
    if (event.at("name") == "process_name" && event.at("pid") == 1)
      CHECK(event.at("args").at("name") == "rank 1 (dp=1)");
  }
}
