// docs/your_own.md: an algorithm of one's own is made, proved, measured and trained with as the
// page says.

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

// An empty folder that goes with the test case.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("own-{}", ::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The first block of that language in a page.
std::string block_of(const std::string& page, const std::string& language) {
  const std::string text = read_file(std::string(RINGSIDE_DOCS) + "/" + page),
                    fence = "```" + language + "\n";
  const auto begin = text.find(fence);
  REQUIRE(begin != std::string::npos);
  return text.substr(begin + fence.size(), text.find("```", begin + 3) - begin - fence.size());
}

void write(const std::string& file, const std::string& text) {
  std::ofstream(file) << text;
}

Outcome run_ringside(std::vector<std::string> arguments, const Variables& variables = {}) {
  arguments.insert(arguments.begin(), ringside_binary);
  return run_program(arguments, variables);
}

// my.json of the page, in the folder; "" where there is no Python.
std::string made_by_python(const Folder& folder) {
  if (run_program({"sh", "-c", "command -v python3"}).exit_code != 0) {
    MESSAGE("SKIPPED: there is no python3");
    return "";
  }
  const std::string python = block_of("your_own.md", "python");
  CHECK(std::count(python.begin(), python.end(), '\n') <= 12);
  write(folder / "my.py", python);
  const Outcome made = run_program({"sh", "-c", "cd " + folder / "" + " && python3 my.py"});
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  return folder / "my.json";
}

}  // namespace

TEST_CASE("docs/your_own.md: twelve lines of Python are proved, drawn, measured and trained with") {
  const Folder folder;
  const std::string mine = made_by_python(folder);
  if (mine.empty()) return;
  const Outcome proved = run_ringside({"prove", "--algorithm", mine});
  CHECK(proved.exit_code == 0);
  CHECK(
      contains(proved.out, "my.json                 4      -  proved                  2     2/1"));
  CHECK(contains(run_ringside({"step", "--algorithm", mine}).out, "rank 3  [0+1+2+3]"));

  const Outcome measured = run_ringside({"bench", "all_reduce", "-n", "4", "--backends", "tcp,shm",
                                         "--algorithm", mine + ",ring", "--bytes", "4B,4KB",
                                         "--repeat", "3", "--json", folder / "bench.json"});
  CAPTURE(measured.err);
  REQUIRE(measured.exit_code == 0);
  const auto rows = Json::parse(read_file(folder / "bench.json"));
  REQUIRE(rows.size() == 8);
  CHECK(rows[0]["algorithm"] == "my.json");
  CHECK(rows[1]["algorithm"] == "ring");
  for (const auto& row : rows) CHECK(row["wrong"] == 0);

  // It adds as recursive doubling does, and not as the ring: the losses have the same digits.
  const auto losses = [](const std::string& algorithm) {
    const Outcome trained =
        run_ringside({"train", "-n", "4", "--steps", "3", "--algorithm", algorithm});
    CAPTURE(trained.err);
    REQUIRE(trained.exit_code == 0);
    std::string found;
    for (std::size_t at = 0; (at = trained.out.find("/3  loss ", at)) != std::string::npos; ++at)
      found += trained.out.substr(at, 16);
    return found;
  };
  CHECK(losses(mine).size() >= 32);
  CHECK(losses(mine) == losses("all_reduce=recursive_doubling"));

  const Outcome simulated = run_ringside({"simulate", "all_reduce", "-n", "4", "--algorithm",
                                          mine + ",recursive_doubling", "--bytes", "1KB"});
  CHECK(simulated.exit_code == 0);
  CHECK(contains(simulated.out, "my.json"));
}

TEST_CASE(
    "docs/your_own.md: a wrong file is refused before a rank starts, with the proof's sentence") {
  const Folder folder;
  const std::string mine = made_by_python(folder);
  if (mine.empty()) return;
  std::string text = read_file(mine);
  for (std::size_t at; (at = text.find("\"add\"")) != std::string::npos;)
    text.replace(at, 5, "\"overwrite\"");
  const std::string wrong = folder / "wrong.json";
  write(wrong, text);
  const std::string sentence = "wrong.json all_reduce, 4 ranks: at the end chunk 0 on rank 0 ";
  for (const Outcome& refused :
       {run_ringside({"train", "-n", "4", "--steps", "1", "--algorithm", wrong}),
        run_ringside({"hello", "-n", "4"}, {{"RINGSIDE_ALGORITHM", wrong}}),
        run_ringside({"bench", "all_reduce", "-n", "4", "--algorithm", wrong}),
        run_ringside({"simulate", "all_reduce", "-n", "4", "--algorithm", wrong}),
        run_ringside({"prove", "--algorithm", wrong}),
        run_ringside({"step", "--algorithm", wrong})}) {
    CAPTURE(refused.err);
    CHECK(refused.exit_code != 0);
    CHECK(contains(refused.out + refused.err, sentence));
  }
}

TEST_CASE("what step --json writes of any algorithm is a file that --algorithm reads") {
  const Folder folder;
  const std::string file = folder / "tree.json";
  CHECK(run_ringside(
            {"step", "reduce", "--algorithm", "binomial", "-n", "5", "--root", "3", "--json", file})
            .exit_code == 0);
  const Outcome proved = run_ringside({"prove", "--algorithm", file});
  CHECK(proved.exit_code == 0);
  CHECK(contains(proved.out, "tree.json               5   some  proved"));
  CHECK(contains(run_ringside({"step", "--algorithm", file}).out,
                 "tree.json reduce on 5 ranks, root 3"));
  CHECK(contains(run_ringside({"step", "--algorithm", file, "--html", folder / "page.html"}).err,
                 "--html plays the algorithms of the catalogue, and " + file + " is a file"));
  CHECK(contains(run_ringside({"bench", "reduce", "-n", "3", "--algorithm", file}).err,
                 "tree.json reduce is for 5 ranks and root 3, but was asked to run on 3 ranks"));
}

TEST_CASE("docs/your_own.md shows the plugin that the tests of bench build") {
  CHECK(block_of("your_own.md", "cpp") ==
        read_file(std::string(RINGSIDE_DOCS) + "/../tests/bench/star.cpp"));
}

TEST_CASE("synthesize is Python, and ringside runs it: none, and a wrong question") {
  if (run_program({"sh", "-c", "command -v python3"}).exit_code != 0) {
    MESSAGE("SKIPPED: there is no python3");
    return;
  }
  const Outcome none =
      run_ringside({"synthesize", "all_gather", "--topology", "dgx1", "--steps", "1"});
  CHECK(none.exit_code == 1);
  CHECK(
      contains(none.out,
               "There is no all_gather with 1 chunk for each rank, 1 step and 1 round on dgx1 (8 "
               "ranks).\nCounting proves it: rank 0 must receive 7 chunks, and its links carry 6"));
  CHECK(contains(run_ringside({"synthesize", "all_gather", "--steps", "2", "--rounds", "1"}).err,
                 "2 steps, 1 rounds"));
}
