// `ringside help`, and what is made from the help of the commands.

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside::testing;

namespace {

std::string document(const std::string& kind) {
  const auto outcome = run_program({ringside_binary, "help", "--as", kind});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  return outcome.out;
}

// What the completion of bash offers after `line`, whose last word is under way.
std::string completed(const std::string& line) {
  const auto outcome = run_program({"bash", "-c", R"(source <("$0" help --as bash)
    read -ra COMP_WORDS <<<"$1"
    COMP_WORDS[0]=$0
    [[ $1 == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _ringside
    echo "${COMPREPLY[*]}")",
                                    ringside_binary, line});
  CHECK(outcome.err == "");
  return outcome.out;
}

}  // namespace

TEST_CASE("help prints the help of a command, with all options") {
  const auto direct = run_program({ringside_binary, "bench", "ddp", "--help"});
  const auto helped = run_program({ringside_binary, "help", "bench", "ddp"});
  CHECK(helped.exit_code == 0);
  CHECK(helped.out == direct.out);
  CHECK(contains(helped.out, "Usage: ringside bench ddp"));

  const auto all = run_program({ringside_binary, "train", "--help-all"});
  CHECK(run_program({ringside_binary, "help", "train"}).out == all.out);
  CHECK(run_program({ringside_binary, "help"}).out == run_program({ringside_binary, "--help"}).out);
}

TEST_CASE("help of a command that does not exist names the nearest one") {
  const auto outcome = run_program({ringside_binary, "help", "bench", "dpd"});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "there is no command 'bench dpd' (did you mean ddp?)"));
}

TEST_CASE("--version names version and commit") {
  const auto outcome = run_program({ringside_binary, "--version"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.starts_with("ringside 0."));
}

TEST_CASE("docs/commands.md is what help --as markdown writes") {
  const std::string page = document("markdown");
  CHECK(contains(page, "## ringside bench ddp\n"));
  CHECK_MESSAGE(page == read_file(RINGSIDE_DOCS "/commands.md"),
                "write it again: build/release/bin/ringside help --as markdown >docs/commands.md");
}

TEST_CASE("the manual page has each command, and text with a backslash") {
  const std::string page = document("man");
  CHECK(page.starts_with(".TH RINGSIDE 1"));
  for (const char* command : {"step pipeline", "train", "postmortem", "help"})
    CHECK(contains(page, std::string(".SS ringside ") + command + "\n"));
  CHECK(contains(page, "\\exNN"));  // generate writes bytes as \xNN
}

TEST_CASE("bash completes commands, subcommands and options") {
  CHECK(completed("ringside tra") == "train\n");
  CHECK(completed("ringside bench ke") == "kernels\n");
  CHECK(completed("ringside train -n 4 --micro") == "--micro-batches\n");
  CHECK(contains(completed("ringside step "), "tensor pipeline"));
  CHECK(completed("ringside train --data no-such-") == "\n");  // bash then offers files
}

TEST_CASE("a completion asks the program for the words that may follow, and what they do") {
  const auto after = [](std::vector<std::string> words) {
    words.insert(words.begin(), {ringside_binary, "help", "--as", "words", "--"});
    return run_program(words).out;
  };
  CHECK(contains(after({}), "train\tTrain a transformer on text, on one rank or many\n"));
  CHECK(after({"bench"}).starts_with("train\t"));
  CHECK(contains(after({"train", "-n", "4"}), "\n--micro-batches\tSplit each data rank's batch"));
  CHECK(!contains(after({"train"}), "\nstep\t"));
}

TEST_CASE("zsh and fish can read their completions") {
  for (const std::string shell : {"zsh", "fish"}) {
    CHECK(contains(document(shell), "help --as words --"));
    if (run_program({"sh", "-c", "command -v " + shell}).exit_code != 0) continue;
    const auto checked = run_program(
        {"sh", "-c", "\"$0\" help --as " + shell + " | " + shell + " -n", ringside_binary});
    CHECK_MESSAGE(checked.exit_code == 0, checked.err);
  }
}

TEST_CASE("fish completes commands, options and files") {
  if (run_program({"sh", "-c", "command -v fish"}).exit_code != 0) return;
  const auto offered = [](const std::string& line) {
    return run_program({"fish", "-c",
                        "eval ($argv[1] help --as fish | string collect); "
                        "complete -C \"$argv[1] $argv[2]\"",
                        ringside_binary, line})
        .out;
  };
  CHECK(contains(offered("bench ke"), "kernels\tMeasure the kernels of a GPU"));
  CHECK(contains(offered("train --micro"), "--micro-batches\t"));
  CHECK(offered("ste").starts_with("step\t"));
}
