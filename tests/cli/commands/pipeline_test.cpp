// `ringside step pipeline` and `ringside prove pipeline`: pictures, tables, files and errors.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include "base/read_file.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/pipeline/pipeline_picture.hpp"
#include "cli/pictures/pipeline/pipeline_proof.hpp"
#include "parallel/pipeline/csv.hpp"
#include "parallel/pipeline/lower.hpp"
#include "tests/cli/pictures/report/markup.hpp"
#include "tests/cli/run_program.hpp"

namespace ringside::cli {
namespace {

using namespace pipeline_parallel;
using testing::contains;
using testing::Outcome;
using testing::ringside_binary;
using testing::run_program;

TimedSchedule timed(const std::string& name, int ranks, int micro_batches,
                    const Durations& durations = {}, int stages_per_rank = 0) {
  TimedSchedule result{lower(make_schedule(name, ranks, micro_batches, stages_per_rank)), {}};
  result.timing = time_of(result.schedule, durations);
  return result;
}

std::string drawn(const TimedSchedule& schedule, int width, bool colour = false) {
  std::ostringstream out;
  draw_pipeline(out, schedule, width, colour);
  return out.str();
}

// In characters, not bytes; without escape sequences.
int longest_line(const std::string& text) {
  int longest = 0, length = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\n') longest = std::max(longest, length), length = 0;
    if (c == '\033') escape = true;
    if (!escape && c != '\n' && (c & 0xC0) != 0x80) ++length;
    if (escape && c == 'm') escape = false;
  }
  return longest;
}

// A file that is removed at the end of the test.
struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(const std::string& ending)
      : path(fmt::format("/tmp/ringside_pipeline_test_{}{}", getpid(), ending)) {}
  ~TemporaryFile() { std::remove(path.c_str()); }
};

Outcome ringside_with(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ringside_binary);
  return run_program(arguments);
}

TEST_CASE("the picture of 1F1B is the one of the textbooks") {
  CHECK(drawn(timed("1f1b", 4, 4), 80) ==
        "time     0              5              10             15             20\n"
        "rank 0   F0 F1 F2 F3                   B0───    B1───    B2───    B3───\n"
        "rank 1      F0 F1 F2             B0─── F3 B1───    B2───    B3───\n"
        "rank 2         F0 F1       B0─── F2 B1─── F3 B2───    B3───\n"
        "rank 3            F0 B0─── F1 B1─── F2 B2─── F3 B3───\n");
}

TEST_CASE("small letters are the second of two stages, and with more stages all are named") {
  CHECK(contains(drawn(timed("zb_v", 2, 2), 80), "rank 1      F0 f0 F1 f1 i0 w0"));
  CHECK(contains(drawn(timed("interleaved", 2, 2, {}, 3), 80), "rank 1       1F0 1F1 3F0 3F1"));
}

TEST_CASE("no line is wider than the terminal, and what does not fit goes on below") {
  for (const Generator& generator : all_generators()) {
    for (const int width : {40, 60, 80, 120}) {
      for (const int micro_batches : {4, 16, 64}) {
        CAPTURE(generator.name);
        CAPTURE(width);
        CAPTURE(micro_batches);
        const TimedSchedule schedule = timed(std::string(generator.name), 4, micro_batches);
        CHECK(longest_line(drawn(schedule, width)) <= width);
        CHECK(longest_line(drawn(schedule, width, true)) <= width);
      }
    }
  }
}

TEST_CASE("with colour the boxes stand in the same columns") {
  const TimedSchedule schedule = timed("zb_h1", 3, 5);
  std::string coloured = drawn(schedule, 80, true), plain;
  CHECK(contains(coloured, "\033[97;48;5;25mF0"));
  bool escape = false;
  for (const char c : coloured) {
    if (c == '\033') escape = true;
    if (!escape) plain += c;
    if (c == 'm') escape = false;
  }
  std::istringstream expected(drawn(schedule, 80)), got(plain);
  for (std::string a, b; std::getline(expected, a) && std::getline(got, b);)
    CHECK(a == b.substr(0, b.find_last_not_of(' ') + 1));
}

TEST_CASE("the picture has a box for each computation") {
  for (const Generator& generator : all_generators()) {
    CAPTURE(generator.name);
    const TimedSchedule schedule = timed(std::string(generator.name), 4, 8);
    std::size_t boxes = 0, computations = 0;
    const Json picture = picture_of(schedule, "a title");
    CHECK(picture.at("title") == "a title");
    for (const Json& lane : picture.at("lanes")) boxes += lane.at("marks").size();
    for (const std::vector<Action>& actions : schedule.schedule.actions) {
      for (const Action& action : actions) computations += is_computation(action.kind) ? 1 : 0;
    }
    CHECK(boxes == computations);
  }
}

TEST_CASE("the pictures of docs/pipeline_parallel.md are what the program draws") {
  for (const Generator& generator : all_generators()) {
    const TemporaryFile svg(".svg");
    const std::string name(generator.name);
    CAPTURE(name);
    const Outcome outcome = ringside_with(
        {"step", "pipeline", name, "-n", "4", "--micro-batches", "8", "--svg", svg.path});
    CHECK(outcome.exit_code == 0);
    CHECK_MESSAGE(read_file(svg.path) == read_file(RINGSIDE_DOCS "/pipeline_" + name + ".svg"),
                  "draw it again: ringside step pipeline " << name << " --svg docs/pipeline_"
                                                           << name << ".svg");
  }
}

TEST_CASE("the picture of docs/context_parallel.md is what the program draws") {
  const TemporaryFile svg(".svg");
  CHECK(ringside_with({"step", "context", "-n", "4", "--zigzag", "--svg", svg.path}).exit_code ==
        0);
  CHECK_MESSAGE(read_file(svg.path) == read_file(RINGSIDE_DOCS "/context_zigzag.svg"),
                "draw it again: ringside step context -n 4 --zigzag --svg docs/context_zigzag.svg");
}

TEST_CASE("step pipeline draws, and writes files that it reads again") {
  const TemporaryFile csv(".csv"), svg(".svg"), json(".json");
  const Outcome outcome =
      ringside_with({"step", "pipeline", "1f1b", "-n", "4", "--micro-batches", "8", "--csv",
                     csv.path, "--svg", svg.path, "--json", json.path});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(outcome.out.starts_with("1f1b on 4 ranks: 8 micro-batches; F takes 1, B 2\n"));
  CHECK(contains(outcome.out, "bubble     27.3 %; by the formula, (p-1)/(m+p-1): 27.3 %\n"));
  CHECK(contains(outcome.out, "holds      4, 3, 2, 1 activations"));
  CHECK(contains(outcome.out, "proved: each action once, in order, and no deadlock\n"));
  CHECK(longest_line(outcome.out) <= 80);
  CHECK(read_file(csv.path) == csv_of(make_schedule("1f1b", 4, 8)));
  CHECK(tests::what_is_malformed(read_file(svg.path)) == "");
  const Json figures = Json::parse(read_file(json.path));
  CHECK(figures["step"] == 33);
  CHECK(figures["of_rank"][3]["actions"][1]["action"] == "3F0");
  CHECK(figures["of_rank"][3]["actions"][1]["start"] == 3);

  const Outcome again = ringside_with({"step", "pipeline", "--schedule", "csv:" + csv.path});
  CHECK(again.exit_code == 0);
  CHECK(contains(again.out, "bubble     27.3 %\n"));
}

TEST_CASE("a file whose warm-up is too short is refused with the circle") {
  const TemporaryFile csv(".csv");
  std::ofstream(csv.path) << "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n";
  const std::string circle =
      "deadlock where sends are buffered: rank 0 waits in 0B0 for 1SEND_B0 of rank 1; rank 1 "
      "waits in 1F1 for 0SEND_F1 of rank 0\n";
  const Outcome step = ringside_with({"step", "pipeline", "csv:" + csv.path});
  CHECK(step.exit_code == 1);
  CHECK(step.out == "");
  CHECK(step.err == "ringside: csv:" + csv.path + ": " + circle);
  const Outcome prove = ringside_with({"prove", "pipeline", "--schedule", "csv:" + csv.path});
  CHECK(prove.exit_code == 1);
  CHECK(contains(prove.out, "csv:" + csv.path + ": " + circle));
  CHECK(prove.err == "ringside: 1 of 1 schedules are wrong: see the findings above\n");
}

TEST_CASE("prove pipeline has a line for each schedule, beside the formulas") {
  const Outcome outcome = ringside_with({"prove", "pipeline", "-n", "4", "--micro-batches", "8"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out,
                 "schedule        stages  proved  bubble  by formula         holds  by formula\n"
                 "gpipe                1  1 of 1  27.3 %  (p-1)/(m+p-1)          8  m\n"
                 "1f1b                 1  1 of 1  27.3 %  (p-1)/(m+p-1)          4  min(m, p-r)\n"
                 "interleaved        1-4  4 of 4   8.6 %  (p-1)/(vm+p-1)        19  (v+1)p-1-2r\n"
                 "looped_bfs         1-4  4 of 4   8.6 %  (p-1)/(vm+p-1)        32  vm\n"
                 "zb_h1                1  1 of 1  11.1 %  idle (p-1)(F+I-W)      4  min(m, p)\n"
                 "zb_v                 2  1 of 1   5.9 %  idle (p-1)F            8  2p\n"
                 "interleaved_zb     1-4  4 of 4   3.0 %  idle (p-1)(F+I-W)     16  vp\n"
                 "dualpipe_v           2  1 of 1   5.9 %  idle (p-1)F            9  2p+1\n"));
  CHECK(longest_line(outcome.out) <= 80);
  const Outcome one = ringside_with({"prove", "pipeline", "--schedule", "zb_v", "-n", "2"});
  CHECK(contains(one.out, "zb_v           2  64 of 64"));
}

TEST_CASE("prove counts a generator that is wrong, and one whose figures differ") {
  Generator wrong = all_generators()[1];
  wrong.make = [](int ranks, int, int micro_batches, int rank) {
    std::vector<Action> actions = all_generators()[1].make(ranks, 1, micro_batches, rank);
    if (micro_batches == 3) std::swap(actions[0], actions[1]);
    return actions;
  };
  const PipelineProof proof = prove(wrong, {.ranks = {2, 2}, .micro_batches = {2, 4}});
  CHECK(proof.findings.cases == 3);
  CHECK(proof.findings.failed == 1);
  REQUIRE(proof.findings.sentences.size() == 1);
  CHECK(proof.findings.sentences[0] ==
        "1f1b, 2 ranks, 3 micro-batches, 1 stage per rank: rank 1 runs 1B0 before 1F0, whose "
        "activations backward needs");

  Generator gpipe_twice = all_generators()[0];
  gpipe_twice.name = "1f1b";
  const PipelineProof holds_too_much =
      prove(gpipe_twice, {.ranks = {2, 2}, .micro_batches = {4, 4}});
  REQUIRE(holds_too_much.findings.sentences.size() == 2);
  CHECK(contains(holds_too_much.findings.sentences[0],
                 "rank 0 holds 4 activations, by the formula 2"));
}

TEST_CASE("wrong arguments get a sentence") {
  const auto error_of = [](std::vector<std::string> arguments) {
    const Outcome outcome = ringside_with(std::move(arguments));
    CHECK(outcome.exit_code != 0);
    return outcome.err;
  };
  CHECK(error_of({"step", "pipeline", "2f2b"}) ==
        "ringside: there is no schedule named '2f2b'; there are gpipe, 1f1b, interleaved, "
        "looped_bfs, zb_h1, zb_v, interleaved_zb and dualpipe_v, and csv:FILE for your own\n");
  CHECK(error_of({"prove", "pipeline", "--schedule", "2f2b"}) ==
        "ringside: there is no schedule named '2f2b'; there are gpipe, 1f1b, interleaved, "
        "looped_bfs, zb_h1, zb_v, interleaved_zb and dualpipe_v, and csv:FILE for your own\n");
  CHECK(
      error_of({"step", "pipeline", "--forward", "-1"}) ==
      "ringside: --forward: a number from 0 to 1000000000 is expected, not -1\nTry: ringside step "
      "--help\n");
  CHECK(
      error_of({"step", "pipeline", "csv:/tmp"}) ==
      "ringside: expected a file with a schedule, a row for each rank; /tmp is a folder: name the "
      "file in it\n");
  CHECK(error_of({"step", "pipeline", "gpipe", "--schedule", "1f1b"}) ==
        "ringside: --schedule takes one value, not 2\nTry: ringside step --help\n");
  CHECK(
      error_of(
          {"prove", "pipeline", "--schedule", "interleaved", "-n", "4", "--micro-batches", "7"}) ==
      "ringside: interleaved works in rounds of as many micro-batches as ranks, so on 4 ranks the "
      "micro-batches must be a multiple of 4, such as 4 or 8; 7 are not\n");
  CHECK(error_of({"step", "pipeline", "--weight", "3"}) ==
        "ringside: W is a part of backward, so it cannot take 3 where backward takes 2\n");
  CHECK(contains(error_of({"step", "pipeline", "csv:/nowhere.csv"}),
                 "cannot read the schedule in /nowhere.csv: No such file or directory"));
}

}  // namespace
}  // namespace ringside::cli
