// The generators: the order of each rank against the figures of the papers, and what they refuse.

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

TEST_CASE("layers: the stages in between get the remainder first, then the first stage") {
  const auto counts = [](std::int64_t layers, int stages) {
    std::vector<std::int64_t> all;
    std::int64_t next = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const LayerRange range = layers_of_stage(layers, stages, stage);
      CHECK(range.first == next);
      next = range.end;
      all.push_back(range.count());
    }
    CHECK(next == layers);
    return all;
  };
  using Counts = std::vector<std::int64_t>;
  CHECK(counts(12, 4) == Counts{3, 3, 3, 3});
  CHECK(counts(5, 1) == Counts{5});
  CHECK(counts(7, 2) == Counts{4, 3});
  CHECK(counts(7, 3) == Counts{2, 3, 2});
  CHECK(counts(8, 3) == Counts{3, 3, 2});
  CHECK(counts(7, 4) == Counts{2, 2, 2, 1});
  CHECK(counts(126, 16) == Counts{7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7});  // Llama 3 405B
}

TEST_CASE("gpipe runs all micro-batches forward, then all backward in the same order") {
  const Schedule schedule = make_schedule("gpipe", 2, 3);
  CHECK(row_of(schedule, 0) == "0F0,0F1,0F2,0B0,0B1,0B2");
  CHECK(row_of(schedule, 1) == "1F0,1F1,1F2,1B0,1B1,1B2");
}

TEST_CASE("1f1b warms up with one forward for each stage behind, then alternates") {
  const Schedule schedule = make_schedule("1f1b", 4, 5);
  CHECK(row_of(schedule, 0) == "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0B2,0B3,0B4");
  CHECK(row_of(schedule, 2) == "2F0,2F1,2B0,2F2,2B1,2F3,2B2,2F4,2B3,2B4");
  CHECK(row_of(schedule, 3) == "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4");
}

TEST_CASE("1f1b works with fewer micro-batches than ranks") {
  const Schedule schedule = make_schedule("1f1b", 4, 2);
  CHECK(row_of(schedule, 0) == "0F0,0F1,0B0,0B1");
  CHECK(row_of(schedule, 3) == "3F0,3B0,3F1,3B1");
  CHECK(verify(schedule).empty());
}

// Narayanan et al. 2021, figure 4, has 4 ranks, 8 micro-batches and 2 stages per rank. The first
// row there is 1 2 3 4 1 2 3 4 5 6 7, then a backward and a forward in turn, micro-batches from 1.
TEST_CASE("interleaved is the figure of the paper") {
  const Schedule schedule = make_schedule("interleaved", 4, 8, 2);
  CHECK(row_of(schedule, 0)
            .starts_with("0F0,0F1,0F2,0F3,4F0,4F1,4F2,4F3,0F4,0F5,0F6,4B0,0F7,4B1,"
                         "4F4,4B2,4F5,4B3,4F6,0B0,4F7,0B1,0B2,0B3,4B4"));
  CHECK(row_of(schedule, 3).starts_with("3F0,3F1,3F2,3F3,7F0,7B0,7F1,7B1,7F2,7B2,7F3,7B3,3F4,3B0"));
  CHECK(schedule.rank_of == std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3});
}

// Qi et al. 2024, figure 3: rank r delays W by r micro-batches.
TEST_CASE("zb_h1 delays W by as many micro-batches as the rank's number") {
  const Schedule schedule = make_schedule("zb_h1", 4, 5);
  CHECK(row_of(schedule, 0) == "0F0,0F1,0F2,0F3,0I0,0W0,0F4,0I1,0W1,0I2,0W2,0I3,0W3,0I4,0W4");
  CHECK(row_of(schedule, 2) == "2F0,2F1,2I0,2F2,2I1,2F3,2I2,2W0,2F4,2I3,2W1,2I4,2W2,2W3,2W4");
  CHECK(row_of(schedule, 3) == "3F0,3I0,3F1,3I1,3F2,3I2,3F3,3I3,3W0,3F4,3I4,3W1,3W2,3W3,3W4");
}

TEST_CASE("zb_v goes down the ranks and up again, and rank 0 starts backward") {
  const Schedule schedule = make_schedule("zb_v", 2, 4);
  CHECK(schedule.rank_of == std::vector<int>{0, 1, 1, 0});
  CHECK(row_of(schedule, 0) ==
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3,0I2,0W2,"
        "0I3,0W3");
  CHECK(row_of(schedule, 1) ==
        "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,2I3,1I3,1W2,"
        "2W3,1W3");
}

TEST_CASE("looped_bfs runs all micro-batches through one stage after the other") {
  const Schedule schedule = make_schedule("looped_bfs", 2, 3, 2);
  CHECK(row_of(schedule, 0) == "0F0,0F1,0F2,2F0,2F1,2F2,2B0,2B1,2B2,0B0,0B1,0B2");
  CHECK(row_of(schedule, 1) == "1F0,1F1,1F2,3F0,3F1,3F2,3B0,3B1,3B2,1B0,1B1,1B2");
  CHECK(schedule.rank_of == std::vector<int>{0, 1, 0, 1});
  CHECK(csv_of(make_schedule("looped_bfs", 3, 5, 1)) == csv_of(make_schedule("gpipe", 3, 5)));
}

// The rows are those of torch's ScheduleInterleavedZeroBubble; tools/peers/pipeline_schedules.py
// compares many more.
TEST_CASE(
    "interleaved_zb is interleaved with a shorter warm-up and W as late as the rank's number") {
  const Schedule schedule = make_schedule("interleaved_zb", 4, 4, 2);
  CHECK(row_of(schedule, 0) ==
        "0F0,0F1,0F2,0F3,4F0,4F1,4F2,4F3,4I0,4W0,4I1,4W1,4I2,4W2,4I3,4W3,0I0,0W0,0I1,0W1,0I2,0W2,"
        "0I3,0W3");
  CHECK(row_of(schedule, 2) ==
        "2F0,2F1,2F2,2F3,6F0,6F1,6I0,6F2,6I1,6F3,6I2,6W0,6I3,6W1,2I0,6W2,2I1,6W3,2I2,2W0,2I3,2W1,"
        "2W2,2W3");
  CHECK(csv_of(make_schedule("interleaved_zb", 4, 8, 1)) == csv_of(make_schedule("zb_h1", 4, 8)));
}

// The rows are those of torch's ScheduleDualPipeV, its pairs one after the other.
TEST_CASE("dualpipe_v runs the forward of one stage beside the backward of the other") {
  const Schedule schedule = make_schedule("dualpipe_v", 2, 4);
  CHECK(schedule.rank_of == std::vector<int>{0, 1, 1, 0});
  CHECK(row_of(schedule, 0) ==
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,0F3,3B1,3F2,0B0,3B2,3F3,0B1,3B3,0I2,0W2,0I3,0W3");
  CHECK(row_of(schedule, 1) ==
        "1F0,2F0,1F1,2F1,1F2,2B0,2F2,1B0,1F3,2B1,2F3,1B1,2B2,1B2,2I3,1I3,2W3,1W3");
  // With fewer micro-batches it is the same order without those that do not exist.
  CHECK(row_of(make_schedule("dualpipe_v", 2, 1), 0) == "0F0,3F0,3I0,3W0,0B0");
}

// The sum of gradients then has the same bits as on a single process.
TEST_CASE("every stage adds up its gradients in the order of the micro-batches") {
  for (const Generator& generator : all_generators()) {
    CAPTURE(generator.name);
    const Schedule schedule = make_schedule(generator, 4, 12);
    std::vector<int> next(schedule.stages());
    for (const std::vector<Action>& actions : schedule.actions) {
      for (const Action& action : actions) {
        if (action.kind == Kind::backward || action.kind == Kind::backward_weight)
          CHECK(action.micro_batch == next[action.stage]++);
      }
    }
  }
}

TEST_CASE("what a schedule does not serve is refused with what it would serve") {
  const auto refusal = [](const std::string& name, int ranks, int micro_batches, int stages = 0) {
    try {
      make_schedule(name, ranks, micro_batches, stages);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal("interleaved", 4, 6) ==
        "interleaved works in rounds of as many micro-batches as ranks, so on 4 ranks the "
        "micro-batches must be a multiple of 4, such as 4 or 8; 6 are not");
  CHECK(refusal("interleaved", 4, 3) ==
        "interleaved works in rounds of as many micro-batches as ranks, so on 4 ranks the "
        "micro-batches must be a multiple of 4, such as 4; 3 are not");
  CHECK(refusal("1f1b", 4, 8, 2) ==
        "1f1b has 1 stage per rank, not 2; interleaved takes any number");
  CHECK(refusal("zb_v", 4, 8, 3) == "zb_v has 2 stages per rank, not 3");
  CHECK(refusal("interleaved", 4, 8, 70'000) ==
        "interleaved has 1 to 65536 stages per rank, not 70000");
  CHECK(refusal("1f1b", 0, 8) == "a pipeline needs at least 1 rank, not 0");
  CHECK(refusal("1f1b", 4, 0) == "a step needs at least 1 micro-batch, not 0");
  CHECK(refusal("2f2b", 4, 8) ==
        "there is no schedule named '2f2b'; there are gpipe, 1f1b, interleaved, looped_bfs, zb_h1, "
        "zb_v, interleaved_zb and dualpipe_v, and csv:FILE for your own");
}

}  // namespace
}  // namespace ringside::pipeline_parallel
