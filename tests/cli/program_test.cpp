// Commands of `ringside` that another program has: the programs stand in one folder, and one that
// is not built is named with its target.

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include <unistd.h>

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside::testing;
using ringside::Json;
namespace fs = std::filesystem;

namespace {

// A build of `ringside` alone: build/lecture/bin. ./demo makes one.
class Alone {
 public:
  Alone() {
    fs::create_directories(folder() / "build/lecture/bin");
    fs::copy_file(ringside_binary, program());
  }
  ~Alone() { fs::remove_all(folder()); }
  fs::path program() const { return folder() / "build/lecture/bin/ringside"; }

 private:
  static fs::path folder() {
    return fs::temp_directory_path() / ("ringside-alone-" + std::to_string(::getpid()));
  }
};

Json told_by(const std::string& program) {
  const Outcome told = run_program({program, "help", "--as", "json"});
  CHECK(told.err == "");
  REQUIRE(told.exit_code == 0);
  return Json::parse(told.out).at("subcommands");
}

}  // namespace

TEST_CASE("a command whose program is not built says what to build") {
  const Alone alone;
  const std::string program = alone.program();
  const std::string build = "cmake --build --preset lecture --target ringside-bench";
  const Outcome outcome = run_program({program, "bench", "--json", "-"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out == "");
  CHECK(outcome.err ==
        "ringside: `ringside bench` is a command of the program ringside-bench, "
        "which is not in " +
            program.substr(0, program.rfind('/')) + ": build it (" + build + ")\n");
  CHECK(run_program({program, "help", "bench"}).exit_code == 1);
  // Its command is listed all the same.
  const Outcome words = run_program({program, "help", "--as", "words"});
  CHECK(contains(words.out, "bench\tNot built: " + build + "\n"));
  CHECK(contains(run_program({program, "help"}).out, "Not built: cmake --build"));
  CHECK(run_program({program, "step", "all_reduce", "-n", "2"}).exit_code == 0);
}

TEST_CASE("each program tells its commands as data, and ringside those of all") {
  const Json all = told_by(ringside_binary);
  for (const Json& command : told_by(ringside_binary + std::string("-bench"))) {
    if (command.at("name") == "help") continue;  // each has one
    CAPTURE(command.at("name"));
    CHECK(std::find(all.begin(), all.end(), command) != all.end());
  }
}

TEST_CASE("ranks of another program say once what is wrong") {
  const Outcome outcome = run_program(
      {ringside_binary, "launch", "-n", "3", "--", ringside_binary, "bench", "--bytse"});
  CHECK(outcome.exit_code == 2);
  const std::string wrong = "--bytse";
  CHECK(outcome.err.find(wrong) != std::string::npos);
  CHECK(outcome.err.find(wrong) == outcome.err.rfind(wrong));
}
