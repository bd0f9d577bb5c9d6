// A stage that fails, and one that hangs: every rank ends with one sentence that names it.
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/pipeline/execution/recording_stages.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::pipeline_parallel;
using namespace ringside::tests;

namespace {

GroupOptions patience(double seconds) {
  GroupOptions options;
  options.executor.timeout = Seconds(seconds);
  options.executor.warn_after = Seconds(0);
  return options;
}

// Runs `during` in every computation of every rank. Returns the text of each rank's error, over
// shm and tcp.
std::vector<std::vector<std::string>> outcomes_of(const Schedule& schedule,
                                                  const std::function<void(const Action&)>& during,
                                                  const GroupOptions& options) {
  const auto body = [&](ProcessGroup& group) {
    Messages messages(group);
    RecordingStages work(schedule, during);
    Executor(schedule, group.rank(), messages, work, {"pp=0,dp=1", "pp=1,dp=1"}).run();
  };
  return {run_shm(schedule.ranks(), body, options), run_tcp(schedule.ranks(), body, options)};
}

}  // namespace

TEST_CASE("a stage that throws ends all ranks with one sentence that names it") {
  for (const char* const name : {"gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "zb_v",
                                 "interleaved_zb", "dualpipe_v"}) {
    CAPTURE(name);
    const Schedule schedule = lower(make_schedule(name, 4, 8));
    const auto during = [](const Action& action) {
      if (action == Action{Kind::forward, 1, 3}) fail("no more memory");
    };
    for (const auto& outcomes : outcomes_of(schedule, during, patience(20)))
      for (const std::string& text : outcomes)
        CHECK(text == "stage 1 (pp=1,dp=1) failed in forward of micro-batch 3: no more memory");
  }
  const Schedule split = lower(make_schedule("zb_h1", 3, 3));
  const auto during = [](const Action& action) {
    if (action == Action{Kind::backward_weight, 2, 0}) fail("no more memory");
  };
  for (const auto& outcomes : outcomes_of(split, during, patience(20)))
    CHECK(outcomes[2] ==
          "stage 2 (rank 2 of the pipeline) failed in backward weight of micro-batch 0: no more "
          "memory");
}

TEST_CASE("a stage that hangs is named by those who wait for it") {
  const Schedule schedule = lower(make_schedule("1f1b", 3, 4));
  const auto during = [](const Action& action) {
    if (action == Action{Kind::forward, 1, 2}) sleep_for(6);
  };
  for (const auto& outcomes : outcomes_of(schedule, during, patience(2))) {
    CAPTURE(outcomes[0]);
    CAPTURE(outcomes[1]);
    CAPTURE(outcomes[2]);
    // Ranks 0 and 2 wait. Whoever fails first tells the others, and rank 1 learns of it later.
    const char* const silent =
        "rank 1 does not answer: stopped, stuck, or busy outside of this sub-group; nothing came "
        "to rank ";
    for (const std::string& text : outcomes) CHECK(contains(text, silent));
    const bool by_0 = contains(
        outcomes[0],
        fmt::format("stage 0 (pp=0,dp=1) could not receive the gradients of micro-batch 1 from "
                    "stage 1 (pp=1,dp=1): {}0 from rank 1 for 2.0 s",
                    silent));
    const bool by_2 = contains(
        outcomes[2],
        fmt::format("stage 2 (rank 2 of the pipeline) could not receive the activations of "
                    "micro-batch 2 from stage 1 (pp=1,dp=1): {}2 from rank 1 for 2.0 s",
                    silent));
    CHECK((by_0 || by_2));
  }
}
