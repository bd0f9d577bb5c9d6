// `ringside status`: the ranks of a job that runs.
#include <csignal>
#include <filesystem>
#include <functional>
#include <regex>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/json.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

// Repeats the command until its figures are as wanted: at most 20 seconds.
Json figures_where(pid_t rank, const std::function<bool(const Json&)>& wanted) {
  Json figures;
  eventually([&] {
    const Outcome outcome =
        run_program({ringside_binary, "status", std::to_string(rank), "--json", "-"});
    CHECK(contains(outcome.err, "rank 0 "));  // the view of people
    REQUIRE(Json::parse_if_possible(outcome.out));
    figures = Json::parse(outcome.out);
    return wanted(figures);
  });
  return figures;
}

// Repeats the command until its output contains the text: at most 20 seconds.
std::string status_with(const std::string& text, pid_t rank) {
  std::string out;
  eventually([&] {
    const Outcome outcome = run_program({ringside_binary, "status", std::to_string(rank)});
    CHECK(outcome.err == "");
    out = outcome.out;
    return contains(out, text);
  });
  return out;
}

}  // namespace

TEST_CASE("status names each rank of a mesh, its call, and the rank that all wait for") {
  for (const char* backend : {"tcp", "shm"}) {
    CAPTURE(backend);
    const TemporaryDirectory folder;
    Program program({ringside_binary, "train", "-n", "4", "--mesh", "dp=2,tp=2", "--backend",
                     backend, "--threads", "1", "--steps", "100000", "--batch", "4", "--sequence",
                     "32", "--layers", "1"},
                    {{"TMPDIR", folder.path().string()}});
    REQUIRE(program.wait_for("step      1/100000"));
    const pid_t first = program.processes_of_rank(0).front();
    const pid_t third = program.processes_of_rank(3).front();

    // Until a rank is looked at in a call.
    const std::string running = status_with(", step ", program.pid());
    CAPTURE(running);
    for (const char* name : {"rank 0 (dp=0,tp=0) ", "rank 1 (dp=0,tp=1) ", "rank 2 (dp=1,tp=0) ",
                             "rank 3 (dp=1,tp=1) "})
      CHECK(contains(running, name));
    CHECK(
        std::regex_search(running, std::regex("all_reduce of .*, step [0-5] \\(of 0 to [0-5]\\)")));

    ::kill(third, SIGSTOP);
    const std::string stopped =
        status_with("Look at rank 3 (dp=1,tp=1): others wait for it", first);
    CAPTURE(stopped);
    CHECK(contains(
        stopped, fmt::format("rank 3 (dp=1,tp=1) stopped: kill -CONT {} lets it go on\n", third)));
    CHECK(contains(stopped, "; waits for rank 3 (dp=1,tp=1)\n"));
    CHECK(std::filesystem::is_empty(folder.path()));  // no record is left

    // As figures: who waits for whom leads from every rank to the stopped one.
    const Json figures = figures_where(
        first, [](const Json& seen) { return seen.at("look_at") == Json::array({3}); });
    CAPTURE(figures.dump(2));
    CHECK(figures.at("ranks") == 4);
    CHECK(figures.at("finding") ==
          "Look at rank 3 (dp=1,tp=1): others wait for it, and it waits for nobody.");
    REQUIRE(figures.at("ranks_here").size() == 4);
    const std::vector<std::string> names{"0 (dp=0,tp=0)", "1 (dp=0,tp=1)", "2 (dp=1,tp=0)",
                                         "3 (dp=1,tp=1)"};
    for (int rank = 0; rank < 4; ++rank) {
      const Json& here = figures.at("ranks_here").at(static_cast<std::size_t>(rank));
      CHECK(here.at("rank") == rank);
      CHECK(here.at("name") == names[static_cast<std::size_t>(rank)]);
      CHECK(here.at("process") == program.processes_of_rank(rank).front());
      if (rank == 3) {
        CHECK(here.at("state") == "stopped");
        CHECK_FALSE(here.contains("call"));
        continue;
      }
      CHECK(here.at("state") == "in a call");
      CHECK(here.at("call_seconds") >= 1);
      CHECK(here.at("step") >= 0);
      CHECK(here.at("step") < here.at("steps"));
      CHECK(contains(here.at("call").get<std::string>(), "all_reduce of "));
      int end = rank;
      for (int hops = 0; end != 3 && hops < 4; ++hops)
        end = figures.at("ranks_here").at(static_cast<std::size_t>(end)).at("waits_for");
      CHECK(end == 3);
    }

    ::kill(third, SIGCONT);
    const std::string again = status_with("No rank has waited for longer than a second.", first);
    CHECK(contains(again, "rank 3 (dp=1,tp=1) "));
    program.send(SIGINT);
    CHECK(program.wait().exit_code == 128 + SIGINT);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("status says of which process it knows no job") {
  const Outcome outcome = run_program({ringside_binary, "status", "1"});
  CHECK(outcome.exit_code == 1);
  const bool known = contains(outcome.err, "process 1 is neither a rank nor the launcher") ||
                     contains(outcome.err, "no job of yours runs on this machine");
  CHECK(known);
}
