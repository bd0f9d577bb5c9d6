// `ringside step` and `ringside prove`: their drawings, tables, figures and errors.

#include <doctest/doctest.h>

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/schedule/proof.hpp"
#include "cli/pictures/schedule/step_table.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/sample.hpp"

namespace ringside::cli {
namespace {

using namespace collectives;
using testing::contains;
using testing::Outcome;
using testing::ringside_binary;
using testing::run_program;

// The drawing of a whole collective, in lines of at most `width` columns.
std::string drawn(const Algorithm& algorithm, int size, int width, bool colour = false,
                  int root = 0) {
  const std::vector<Schedule> schedules = make_schedules(algorithm, size, root);
  std::vector<RankState> states =
      start_with_contributions(size, schedules[0].chunks, names_chunks(algorithm.collective));
  std::ostringstream out;
  const StepTable table(out, algorithm, size, width, colour);
  table.draw_start(states);
  for (int step = 0; step < static_cast<int>(schedules[0].steps.size()); ++step) {
    run_step(schedules, step, states);
    table.draw_step(schedules, step, states);
  }
  return out.str();
}

std::string drawn(Collective collective, int size, int width, bool colour = false, int root = 0) {
  return drawn(find_algorithm(collective), size, width, colour, root);
}

// In characters, not bytes.
int longest_line(const std::string& text) {
  std::istringstream lines(text);
  int longest = 0;
  for (std::string line; std::getline(lines, line);) {
    int length = 0;
    for (const char c : line) length += (c & 0xC0) != 0x80;
    longest = std::max(longest, length);
  }
  return longest;
}

// The output of `ringside step` on a terminal.
std::string on_a_terminal(const testing::Variables& variables) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    execl(ringside_binary.c_str(), "ringside", "step", "-n", "2", nullptr);
    _exit(127);
  }
  std::string out;
  char buffer[4096];
  for (ssize_t n = read(terminal, buffer, sizeof buffer); n > 0;
       n = read(terminal, buffer, sizeof buffer))
    out.append(buffer, n);
  close(terminal);
  waitpid(child, nullptr, 0);
  return out;
}

// A file for --json, removed at the end of the test.
struct TemporaryFile {
  std::string path = fmt::format("/tmp/ringside_step_prove_test_{}.json", getpid());
  ~TemporaryFile() { std::remove(path.c_str()); }
  Json json() const { return Json::parse(read_file(path)); }
};

TEST_CASE("step draws the ring reduce-scatter of three ranks") {
  CHECK(drawn(Collective::reduce_scatter, 3, 100) ==
        "\n"
        "at the start\n"
        "           chunk 0  chunk 1  chunk 2\n"
        "  rank 0   0        0        0\n"
        "  rank 1   1        1        1\n"
        "  rank 2   2        2        2\n"
        "\n"
        "step 0: what arrives is added\n"
        "           chunk 0  chunk 1  chunk 2\n"
        "  rank 0   0       [0+2]     0          ─2─▶ rank 1\n"
        "  rank 1   1        1       [0+1]       ─0─▶ rank 2\n"
        "  rank 2  [1+2]     2        2          ─1─▶ rank 0\n"
        "\n"
        "step 1: what arrives is added\n"
        "           chunk 0  chunk 1  chunk 2\n"
        "  rank 0  [0+1+2]   0+2      0          ─1─▶ rank 1\n"
        "  rank 1   1       [0+1+2]   0+1        ─2─▶ rank 2\n"
        "  rank 2   1+2      2       [0+1+2]     ─0─▶ rank 0\n");
}

TEST_CASE("step draws a broadcast and a barrier") {
  CHECK(contains(drawn(Collective::broadcast, 3, 100, false, 1),
                 "step 1: what arrives replaces what was there\n"
                 "           chunk 0\n"
                 "  rank 0   1\n"
                 "  rank 1   1          ─0─▶ rank 2\n"
                 "  rank 2  [1]\n"));
  CHECK(contains(drawn(Collective::barrier, 3, 100),
                 "step 1: the messages carry no payload\n"
                 "           has heard from\n"
                 "  rank 0  [0+1+2]            ───▶ rank 2\n"
                 "  rank 1  [0+1+2]            ───▶ rank 0\n"
                 "  rank 2  [0+1+2]            ───▶ rank 1\n"));
}

TEST_CASE(
    "step draws a one-shot all-reduce, where each rank adds its own input in rank order, and an "
    "all-to-all with its chunks") {
  CHECK(contains(drawn(find_algorithm(Collective::all_reduce, "one_shot"), 2, 100),
                 "step 1: what arrives is added on rank 0, and replaces what was there on rank 1\n"
                 "           chunk 0\n"
                 "  rank 0  [0+1]       ─0─▶ rank 1\n"
                 "  rank 1  [0]         ─0─▶ rank 0\n"
                 "\n"
                 "step 2: what arrives is added\n"
                 "           chunk 0\n"
                 "  rank 0   0+1\n"
                 "  rank 1  [0+1]       ─0─▶ rank 1\n"));
  CHECK(contains(drawn(Collective::all_to_all, 3, 100),
                 "step 2: what arrives replaces what was there\n"
                 "           chunk 0  chunk 1  chunk 2\n"
                 "  rank 0   0.0      1.0     [2.0]       ─2─▶ rank 2\n"
                 "  rank 1   0.1      1.1      2.1\n"
                 "  rank 2  [0.2]     1.2      2.2        ─0─▶ rank 0\n"));
}

TEST_CASE("a cell has three notations and shows repeated contributions") {
  CHECK(cell_text({1, 1, 1, 0, 1}, CellNotation::names) == "0+1+2+4");
  CHECK(cell_text({1, 1, 1, 0, 1}, CellNotation::spans) == "0-2+4");
  CHECK(cell_text({1, 1, 1, 0, 1}, CellNotation::counts) == "4");
  CHECK(cell_text({1, 1, 0, 2}, CellNotation::names) == "0+1+3+3");
  CHECK(cell_text({1, 1, 0, 2}, CellNotation::spans) == "0+1+3+3");
  CHECK(cell_text({0, 7, 1, 1, 1}, CellNotation::spans) == "1(x7)+2-4");
  CHECK(cell_text({0, 0}, CellNotation::names) == "");
}

TEST_CASE("the drawing fits the width for every algorithm and up to 33 ranks") {
  testing::Sample sample;
  for (const Algorithm& algorithm : all_algorithms()) {
    for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 33}) {
      for (const int width : {80, 100, 160}) {
        if (!sample.takes()) continue;
        CAPTURE(algorithm.title());
        CAPTURE(size);
        CAPTURE(width);
        if (algorithm.collective == Collective::barrier && size == 33)
          continue;  // one row names up to 33 ranks
        CHECK(longest_line(drawn(algorithm, size, width)) <= width);
      }
    }
  }
}

TEST_CASE("colour only adds escape sequences") {
  std::string coloured = drawn(Collective::all_reduce, 4, 100, true);
  CHECK(contains(coloured, "\033[1;32m[0+1+2+3]\033[0m"));  // added
  CHECK(contains(coloured, "\033[1;33m[0+1+2+3]\033[0m"));  // overwritten
  for (size_t begin = coloured.find('\033'); begin != std::string::npos;
       begin = coloured.find('\033')) {
    coloured.erase(begin, coloured.find('m', begin) + 1 - begin);
  }
  CHECK(coloured == drawn(Collective::all_reduce, 4, 100));
}

TEST_CASE(
    "ringside step without arguments draws the ring all-reduce of four ranks, with a title and the "
    "promised result") {
  const Outcome outcome = run_program({ringside_binary, "step"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(outcome.out.starts_with("ring all_reduce on 4 ranks: 6 steps, the buffer in 4 chunks\n"));
  CHECK(contains(outcome.out, drawn(Collective::all_reduce, 4, 100)));
  CHECK(outcome.out.ends_with(
      "\nAt the end every rank holds the sum of all ranks, as all_reduce promises.\n"));
  CHECK_FALSE(contains(outcome.out, "\033"));  // no colour without a terminal
}

TEST_CASE("ringside step uses colour on a terminal, except with NO_COLOR or on a dumb terminal") {
  CHECK(contains(on_a_terminal({}), "\033[1;32m[0+1]"));
  const std::string plain = on_a_terminal({{"NO_COLOR", "1"}});
  CHECK(contains(plain, "[0+1]"));
  CHECK_FALSE(contains(plain, "\033"));
  CHECK_FALSE(contains(on_a_terminal({{"TERM", "dumb"}}), "\033"));
}

TEST_CASE("ringside step --json writes the same steps") {
  const TemporaryFile file;
  const Outcome outcome = run_program({ringside_binary, "step", "reduce", "--algorithm", "binomial",
                                       "-n", "3", "--root", "2", "--json", file.path});
  CHECK(outcome.exit_code == 0);
  const Json json = file.json();
  CHECK(json["collective"] == "reduce");
  CHECK(json["algorithm"] == "binomial");
  CHECK(json["ranks"] == 3);
  CHECK(json["root"] == 2);
  CHECK(json["chunks"] == 1);
  CHECK(json["start"][1]["chunks"].dump() == "[[1]]");
  REQUIRE(json["steps"].size() == 2);
  CHECK(json["steps"][0]["messages"].dump() ==
        R"([{"from":0,"to":2,"taken":[0],"chunks":[0],"action":"add",)"
        R"("input":false,"label":"0","words":"chunk 0"}])");
  CHECK(json["steps"][1]["ranks"][2]["chunks"].dump() == "[[0,1,2]]");
  CHECK(json["steps"][1]["ranks"][2]["heard_from"].dump() == "[0,1,2]");
  CHECK(json["findings"].empty());
}

TEST_CASE("ringside step reports wrong arguments") {
  const auto err = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {ringside_binary, "step"});
    const Outcome outcome = run_program(arguments);
    CHECK(outcome.exit_code != 0);
    return outcome.err;
  };
  CHECK(contains(err({"allreduce"}),
                 "there is no collective named 'allreduce' (did you mean all_reduce?);"));
  CHECK(contains(err({"all_reduce", "--algorithm", "tree"}),
                 "there is no algorithm named 'tree' for all_reduce; there are ring, "));
  CHECK(contains(err({"broadcast", "--root", "4"}),
                 "the root of a broadcast on 4 ranks must be one of 0 to 3, not 4"));
  CHECK(contains(err({"all_reduce", "--root", "1"}), "all_reduce has no root: leave out --root"));
  CHECK(contains(err({"all_reduce", "-n", "0"}), "a number from 1 to 64 is expected, not 0"));
  CHECK(contains(err({"all_reduce", "--json", "/nowhere/file"}),
                 "cannot write the figures to /nowhere/file"));
}

TEST_CASE("ringside prove proves every algorithm of the catalogue") {
  const TemporaryFile file;
  const Outcome outcome =
      run_program({ringside_binary, "prove", "--max-size", "9", "--json", file.path});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "every rank holds the sum of all ranks"));
  const Json json = file.json();
  REQUIRE(json.size() == all_algorithms().size());
  for (const Json& row : json) CHECK(row["holds"] == true);
  CHECK(json[0]["collective"] == "all_reduce");
  CHECK(json[0]["max_ranks"] == 9);
  CHECK(json[0]["cases"] == 9);
  CHECK(json[0]["steps"] == 16);
  CHECK(json[0]["chunks_sent"] == 16);
  CHECK(json[0]["chunks"] == 9);
}

TEST_CASE("ringside prove proves only the selected algorithms") {
  const Outcome ring =
      run_program({ringside_binary, "prove", "--algorithm", "ring", "--max-size", "4"});
  CHECK(contains(ring.out, "reduce_scatter"));
  CHECK_FALSE(contains(ring.out, "binomial"));
  const Outcome reduce = run_program({ringside_binary, "prove", "reduce", "--max-size", "4"});
  CHECK(contains(reduce.out, "binomial"));
  CHECK_FALSE(contains(reduce.out, "ring"));
  const Outcome wrong = run_program({ringside_binary, "prove", "--algorithm", "star"});
  CHECK(wrong.exit_code == 1);
  CHECK(contains(wrong.err, "there is no algorithm named 'star'; there are"));
}

TEST_CASE("ringside prove --costs: what calls of an algorithm take") {
  const Outcome outcome =
      run_program({ringside_binary, "prove", "all_reduce", "--algorithm", "ring", "--max-size", "4",
                   "--costs", "1e-6,1e-9", "--bytes", "4KB,4001B", "--json", "-"});
  CHECK(outcome.exit_code == 0);
  const Json rows = Json::parse(outcome.out);
  REQUIRE(rows.size() == 2);
  // Six messages of a chunk one after the other; of 4,001 bytes one chunk has 1,001.
  CHECK(rows[0].at("seconds").get<double>() == doctest::Approx(6 * 2e-6).epsilon(1e-12));
  CHECK(rows[1].at("seconds").get<double>() == doctest::Approx(6 * 2.001e-6).epsilon(1e-12));
  CHECK(rows[1].at("algorithm") == "ring");
  CHECK(rows[1].at("bytes") == 4001);
  for (const char* costs : {"1e-6", "1,-1"})
    CHECK(contains(run_program({ringside_binary, "prove", "--costs", costs}).err,
                   "--costs: two numbers of at least 0 are expected"));
}

TEST_CASE("ringside prove --order: in which order an algorithm adds") {
  const auto of = [](const std::vector<std::string>& words) {
    std::vector<std::string> all{ringside_binary, "prove"};
    all.insert(all.end(), words.begin(), words.end());
    return run_program(all);
  };
  CHECK(of({"--order", "ring", "-n", "3"}).out ==
        "ring all_reduce, 3 ranks\n"
        "  chunk 0   (1+2)+0\n"
        "  chunk 1   (0+2)+1\n"
        "  chunk 2   (0+1)+2\n");
  CHECK(of({"--order", "halving_doubling_all_reduce"}).out ==
        "halving_doubling all_reduce, 4 ranks\n"
        "  every chunk  (0+2)+(1+3)\n");
  CHECK(of({"reduce", "--order", "binomial", "-n", "3"}).out ==
        "binomial reduce, 3 ranks, root 0\n"
        "  every chunk  (0+1)+2\n");
  const Json json =
      Json::parse(of({"--order", "ring_reduce_scatter", "-n", "2", "--json", "-"}).out);
  CHECK(json.at("collective") == "reduce_scatter");
  CHECK(json.at("orders")[1] == "0+1");
  CHECK(of({"--order", "ring_all_gather"}).err ==
        "ringside: all_gather adds nothing: only all_reduce, reduce_scatter and reduce do\n");
  CHECK(contains(of({"--order", "rings"}).err,
                 "there is no algorithm named 'rings' for all_reduce (did you mean ring?)"));
  CHECK(
      contains(of({"--order", "ring", "-n", "2,3"}).err, "-n: --order takes one number of ranks"));
  CHECK(contains(of({"--order", "ring", "-n", "0"}).err,
                 "-n: numbers of ranks from 1 to 256 are expected, not 0"));
}

TEST_CASE("ringside prove --same-as: whether two orders are the same") {
  const auto of = [](const std::vector<std::string>& words) {
    std::vector<std::string> all{ringside_binary, "prove", "--same-as"};
    all.insert(all.end(), words.begin(), words.end());
    return run_program(all);
  };
  CHECK(of({"ring_reduce_scatter", "--order", "ring"}).out ==
        "ring all_reduce, 4 ranks, and ring reduce_scatter, 4 ranks: the same order\n");
  CHECK(of({"ring", "--order", "halving_doubling", "-n", "3"}).out ==
        "halving_doubling all_reduce, 3 ranks, and ring all_reduce, 3 ranks: not the same order\n"
        "  every chunk  (0+1)+2\n"
        "  chunk 0      (1+2)+0\n");
  CHECK(of({"halving_doubling", "-n", "4,8"}).out ==
        "halving_doubling all_reduce, 4 ranks, and halving_doubling all_reduce, 8 ranks: the same "
        "order, if the ranks of the first bring these sums\n"
        "  rank 0    0+4\n  rank 1    1+5\n  rank 2    2+6\n  rank 3    3+7\n");
  CHECK(contains(of({"ring", "-n", "4,8"}).out, "not the same order"));
  const Json json = Json::parse(of({"halving_doubling", "-n", "8,4", "--json", "-"}).out);
  CHECK(json.at("same") == true);
  CHECK(json.at("ranks")[0] == 4);
  CHECK(json.at("shares")[3] == "3+7");
  CHECK(
      contains(of({"ring", "-n", "2,3,4"}).err, "-n: --same-as takes one number of ranks, or two"));
}

TEST_CASE("prove finds an algorithm that is wrong from three ranks on") {
  const Algorithm broken{Collective::all_reduce, "left_ring", [](int size, int rank, int) {
                           Schedule schedule = ring_all_reduce(size, rank);
                           for (Step& step : schedule.steps) step.send->to = wrap(rank - 1, size);
                           return schedule;
                         }};
  const Proof proof = prove(broken, 5);
  CHECK_FALSE(proof.findings.hold());
  CHECK(proof.findings.cases == 5);
  CHECK(proof.findings.failed == 3);
  REQUIRE_FALSE(proof.findings.sentences.empty());
  CHECK(proof.findings.sentences[0] ==
        "left_ring all_reduce, 3 ranks: step 0: rank 0 sends chunk 2 to rank 2, but rank 2 expects "
        "chunk 0 from rank 1");

  std::ostringstream out;
  print_table(out, {proof});
  print_findings(out, proof.findings);
  CHECK(contains(out.str(), "NO: 3 of 5 cases fail"));
  CHECK(contains(out.str(), proof.findings.sentences[9]));
  CHECK_FALSE(contains(out.str(), proof.findings.sentences[10] + "\n"));
  CHECK(contains(out.str(), fmt::format("... and {} more; --json FILE writes all",
                                        proof.findings.sentences.size() - 10)));
  CHECK(table_of({proof}).json()[0]["holds"] == false);
}

TEST_CASE("prove tries every root of a collective with a root") {
  CHECK(prove(find_algorithm(Collective::broadcast), 5).findings.cases == 1 + 2 + 3 + 4 + 5);
  const Algorithm only_root_0{Collective::broadcast, "only_root_0", [](int size, int rank, int) {
                                return find_algorithm(Collective::broadcast).make(size, rank, 0);
                              }};
  CHECK(prove(only_root_0, 4).findings.failed == 0 + 1 + 2 + 3);
}

TEST_CASE("prove reports an algorithm that throws") {
  const Algorithm unfinished{Collective::barrier, "unfinished", [](int, int, int) -> Schedule {
                               throw Error("the exercise is not solved yet");
                             }};
  const Proof proof = prove(unfinished, 2);
  CHECK(proof.findings.failed == 2);
  CHECK(proof.findings.sentences[0] ==
        "unfinished barrier, 1 rank: it throws: the exercise is not solved yet");
}

TEST_CASE("an algorithm by the name of its function") {
  const auto out = [](std::vector<std::string> words) {
    words.insert(words.begin(), ringside_binary);
    const Outcome outcome = run_program(words);
    return outcome.out + outcome.err;
  };
  CHECK(out({"step", "halving_doubling_all_reduce"}) ==
        out({"step", "all_reduce", "--algorithm", "halving_doubling"}));
  CHECK(
      contains(out({"prove", "ring_all_gather", "--max-size", "4"}), "ring                  1-4"));
  CHECK(!contains(out({"prove", "ring_all_gather", "--max-size", "4"}), "all_reduce"));
  CHECK(contains(out({"step", "ring_barrier"}), "there is no collective named 'ring_barrier'"));
}

}  // namespace

}  // namespace ringside::cli
