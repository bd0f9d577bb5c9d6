// Schedules as CSV: both ways, and the errors.

#include <cstdio>
#include <fstream>

#include <doctest/doctest.h>
#include <unistd.h>

#include "base/error.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "tests/parallel/pipeline/schedules.hpp"

namespace ringside::pipeline_parallel {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_csv(text, "mine.csv");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a schedule survives writing and reading, with and without messages") {
  for (const Generator& generator : all_generators()) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      CAPTURE(generator.name);
      CAPTURE(ranks);
      const Schedule schedule = make_schedule(generator, ranks, 2 * ranks);
      CHECK(parse_csv(csv_of(schedule), "test") == schedule);
      const Schedule lowered = lower(schedule);
      CHECK(parse_csv(csv_of(lowered), "test") == lowered);
    }
  }
}

// As Python's csv module writes it: idle steps are empty cells, lines end with CR LF.
TEST_CASE("a file of torch has empty cells for idle steps") {
  const Schedule schedule =
      parse_csv("0F0,0F1,,,0B0,,0B1\r\n,1F0,1F1, 1B0 ,1B1,,\r\n", "torch.csv");
  CHECK(csv_of(schedule) == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  CHECK(schedule.rank_of == std::vector<int>{0, 1});
  CHECK(schedule.micro_batches == 2);
  CHECK(verify(schedule).empty());
}

TEST_CASE("every kind of action is read and written") {
  const std::string row =
      "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0I1,0W1,0REDUCE_GRAD\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1I1,1SEND_B1,1W1,1REDUCE_GRAD\n";
  const Schedule schedule = parse_csv(row, "test");
  CHECK(csv_of(schedule) == row);
  CHECK(verify(schedule).empty());
}

// Written by torch 2.15: ScheduleDualPipeV on 2 ranks with 4 micro-batches, _dump_csv() with
// "compute_comms".
TEST_CASE("a lowered file of torch is read: what torch waits for and gathers is left out") {
  const Schedule schedule = parse_csv(
      "0UNSHARD,3UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,0F2,0SEND_F2,3F0,3RECV_F1,3I0,"
      "3SEND_B0,3W0,3F1,3RECV_F2,0RECV_B0,(0F3;3B1)OVERLAP_F_B,0SEND_F3,3SEND_B1,"
      "(3F2;0B0)OVERLAP_F_B,0WAIT_SEND_F0,3RECV_F3,0RECV_B1,3B2,3SEND_B2,"
      "(3F3;0B1)OVERLAP_F_B,0WAIT_SEND_F1,0RECV_B2,3B3,3SEND_B3,3REDUCE_GRAD,0RECV_B3,"
      "3WAIT_REDUCE_GRAD,3RESHARD,0I2,0WAIT_SEND_F2,0W2,0I3,0WAIT_SEND_F3,0W3,0REDUCE_GRAD,"
      "0WAIT_REDUCE_GRAD,0RESHARD,3WAIT_SEND_B0,3WAIT_SEND_B1,3WAIT_SEND_B2,3WAIT_SEND_B3\n"
      "1UNSHARD,2UNSHARD,1RECV_F0,1F0,1RECV_F1,2F0,2SEND_F0,1RECV_F2,1F1,2F1,2SEND_F1,"
      "2RECV_B0,1F2,2B0,2WAIT_SEND_F0,(2F2;1B0)OVERLAP_F_B,2SEND_F2,1SEND_B0,1RECV_F3,"
      "2RECV_B1,(1F3;2B1)OVERLAP_F_B,2WAIT_SEND_F1,(2F3;1B1)OVERLAP_F_B,2SEND_F3,1SEND_B1,"
      "2RECV_B2,2B2,2WAIT_SEND_F2,1B2,1SEND_B2,2RECV_B3,2I3,2WAIT_SEND_F3,1I3,1SEND_B3,2W3,"
      "2REDUCE_GRAD,2WAIT_REDUCE_GRAD,2RESHARD,1W3,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,"
      "1WAIT_SEND_B0,1WAIT_SEND_B1,1WAIT_SEND_B2,1WAIT_SEND_B3\n",
      "torch.csv");
  CHECK(verify(schedule).empty());
  CHECK(has_messages(schedule));
  CHECK(has_reductions(schedule));
  Schedule computations = schedule;
  for (std::vector<Action>& actions : computations.actions)
    std::erase_if(actions, [](const Action& action) { return !is_computation(action.kind); });
  CHECK(csv_of(computations) == csv_of(make_schedule("dualpipe_v", 2, 4)));
  // A stage that is only gathered must be on this rank as well.
  CHECK(error_of("0F0,0B0,1UNSHARD\n1F0,1B0\n")
            .starts_with(
                "mine.csv:2:1: expected a stage of rank 1, got stage 1, which is on rank 0"));
}

TEST_CASE("an error names file, line and column, and what was expected") {
  CHECK(
      error_of("0F0,0B0\n1F0,1X0\n") ==
      "mine.csv:2:5: expected an action, such as 2F0 for forward of stage 2 and micro-batch 0, or "
      "2B0, 2I0, 2W0, 2SEND_F0, 2RECV_F0, 2SEND_B0, 2RECV_B0 or 2REDUCE_GRAD; got \"1X0\"");
  for (const std::string cell :
       {"F0", "0F", "0FF0", "0F0x", "0UNSHARD1", "0REDUCE_GRAD1", "-1F0", "0F99999999999",
        "0WAIT_SEND_F", "(0F0;0F1)OVERLAP_F_B", "(0F0)OVERLAP_F_B", "(0F0;0B1;0B2)OVERLAP_F_B",
        "(0F0;0B1)OVERLAP", "0f0"}) {
    CAPTURE(cell);
    CHECK(error_of("0F0," + cell + "\n").starts_with("mine.csv:1:5: expected an action"));
    CHECK(error_of("0F0," + cell + "\n").ends_with("got \"" + cell + "\""));
  }
  CHECK(
      error_of("0F0,0B0\n0F1,1F0\n") ==
      "mine.csv:2:1: expected a stage of rank 1, got stage 0, which is on rank 0 already (line 1, "
      "column 1): a stage has one rank");
  CHECK(error_of("0F0,0B0\n\n1F0,1B0\n") ==
        "mine.csv:2:1: expected the actions of rank 1, got a row without any");
  CHECK(error_of("0F0,0B0\n2F0,2B0\n") ==
        "mine.csv: expected stages 0 to 2, got no action of stage 1 in any row");
  CHECK(error_of("") == "mine.csv: expected one row per rank, got an empty file");
  CHECK(error_of("0F0,0B60000\n") ==
        "mine.csv: expected at least 60001 actions, a forward for each of 1 stages and 60001 "
        "micro-batches; got 2");
  CHECK(error_of("0F0,0B1000000\n") ==
        "mine.csv:1:5: expected a micro-batch from 0 to 65535, got 1000000");
  CHECK(error_of("70000F0\n") == "mine.csv:1:1: expected a stage from 0 to 65535, got 70000");
  CHECK(error_of("0F\x1b[31m\n").ends_with("got \"0F\\x1b[31m\""));
}

TEST_CASE("a micro-batch beyond what a schedule can have is an error and does not overflow") {
  CHECK(error_of("0F2147483647\n")
            .ends_with("expected a micro-batch from 0 to 65535, got 2147483647"));
  CHECK(error_of("65536F0\n").ends_with("expected a stage from 0 to 65535, got 65536"));
}

TEST_CASE("a schedule without a micro-batch is an error") {
  CHECK(error_of("0REDUCE_GRAD\n")
            .ends_with("expected the actions of at least one micro-batch, got none"));
}

TEST_CASE("csv:FILE is the name of a schedule, and must fit the run") {
  const std::string path = "/tmp/ringside_csv_test_" + std::to_string(getpid()) + ".csv";
  std::ofstream(path) << csv_of(make_schedule("interleaved", 2, 4, 3));
  CHECK(make_schedule("csv:" + path, 2, 4, 3) == make_schedule("interleaved", 2, 4, 3));
  CHECK(make_schedule("csv:" + path, 0, 0).stages() == 6);
  const auto error_with = [&](int ranks, int micro_batches, int stages) {
    try {
      make_schedule("csv:" + path, ranks, micro_batches, stages);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(error_with(3, 4, 0) == path + " is a schedule for 2 ranks, one per row, not for 3");
  CHECK(error_with(2, 8, 0) == path + " is a schedule of 4 micro-batches, not of 8");
  CHECK(error_with(2, 4, 2) == path + " is a schedule of 6 stages, not of 2 on each of 2 ranks");
  CHECK(error_with(0, 0, 2) == path + " is a schedule of 6 stages, not of 2 on each of 2 ranks");
  CHECK(error_with(0, 0, 3) == "");
  CHECK_THROWS_WITH_AS(make_schedule("csv:/tmp", 2, 4),
                       "expected a file with a schedule, a row for each rank; /tmp is a folder: "
                       "name the file in it",
                       Error);
  std::remove(path.c_str());
  CHECK(error_with(2, 4, 0) ==
        "cannot read the schedule in " + path + ": No such file or directory");
}

}  // namespace
}  // namespace ringside::pipeline_parallel
