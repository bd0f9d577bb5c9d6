// Ctrl-C during `ringside train --save`, and the runs that --save does not replace.

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/cli/run_program.hpp"

namespace ringside::cli {
namespace {

using namespace testing;

// The text between `before` and `after`.
std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const std::size_t found = text.find(before);
  REQUIRE(found != std::string::npos);
  const std::size_t begin = found + before.size();
  return text.substr(begin, text.find(after, begin) - begin);
}

// Interrupts a run after some steps. Its checkpoint must be that of a run that stops there, and the
// printed command must continue it.
void check_interruption(const Command& options, int signal) {
  CAPTURE(fmt::format("{}", fmt::join(options, " ")));
  const Training training({"--dtype", "fp64", "--seed", "3"});
  const std::string saved = training.path("saved it's").string();
  Command with_folder = options;
  with_folder.insert(with_folder.end(), {"--steps", "1000000", "--save", saved});
  Program program(training.command(with_folder));
  REQUIRE(program.wait_for("bits/byte"));
  program.send(signal);
  const Outcome outcome = program.wait(Seconds(60));
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 128 + signal);
  CHECK(outcome.survivors == "");
  const std::string step = between(outcome.out, "stopped  after step ", " of 1000000; to go on:\n");
  REQUIRE(std::filesystem::exists(training.path("saved it's") /
                                  fmt::format("training-{}.safetensors", step)));

  Command whole = options;
  whole.insert(whole.end(), {"--steps", "1000000", "--stop-at", step, "--save",
                             training.path("whole").string()});
  REQUIRE(training.run(whole).exit_code == 0);
  CHECK(same_model(training.path("saved it's"), training.path("whole")));

  const std::string command = between(outcome.out, "to go on:\n", "\n");
  const Outcome next = run_program(
      {"sh", "-c", fmt::format("{} --stop-at {}", command, std::stoi(step) + 2)}, {}, Seconds(60));
  CAPTURE(command);
  CHECK(next.err == "");
  CHECK(next.exit_code == 0);
  CHECK(contains(next.out, fmt::format("resumed  after step {}\n", step)));
}

}  // namespace

TEST_CASE("an interrupted run saves what a run that stops there saves and says how to go on") {
  check_interruption({}, SIGINT);
  check_interruption({"-n", "2", "--backend", "tcp"}, SIGHUP);
  check_interruption({"-n", "2", "--backend", "shm", "--parallel", "bucketed"}, SIGINT);
  check_interruption({"-n", "3", "--backend", "tcp", "--parallel", "zero3"}, SIGTERM);
  check_interruption({"-n", "4", "--backend", "threads", "--parallel", "zero1"}, SIGINT);
  check_interruption({"-n", "3", "--backend", "threads"}, SIGTERM);
}

TEST_CASE("a run that stops at a step says how to go on, and its checkpoint knows its text") {
  const Training training({"--steps", "6"});
  const auto at = [&](const char* name) { return training.path(name).string(); };
  const Outcome stopped = training.run({"--stop-at", "4", "--save", at("saved")});
  REQUIRE(stopped.exit_code == 0);
  CHECK(contains(stopped.out, "stopped  after step 4 of 6; to go on:\n"));
  const std::string command = between(stopped.out, "to go on:\n", "\n");
  CHECK_FALSE(contains(command, "--stop-at"));
  std::filesystem::copy(at("saved"), at("copy"));

  const std::string of_text =
      fmt::format("cd / && \"$0\" train --threads 1 --resume {}", at("copy"));
  for (const Command& resume : {Command{"sh", "-c", command, ringside_binary},
                                Command{"sh", "-c", of_text, ringside_binary}}) {
    const Outcome next = run_program(resume, {}, Seconds(60));
    CHECK(next.err == "");
    CHECK(next.exit_code == 0);
    CHECK(contains(next.out, "text.txt\n         1 file, "));
    CHECK(contains(next.out, "resumed  after step 4\n"));
    CHECK_FALSE(contains(next.out, "to go on"));
  }
  CHECK(same_model(training.path("saved"), training.path("copy")));
  CHECK_FALSE(contains(training.run({"--stop-at", "4"}).out, "to go on"));
}

TEST_CASE("an interrupted run on a mesh saves all parts of the model after the same step") {
  check_interruption({"-n", "4", "--mesh", "dp=2,tp=2", "--backend", "tcp"}, SIGINT);
  check_interruption({"-n", "4", "--mesh", "pp=2,dp=2", "--layers", "2", "--micro-batches", "2",
                      "--backend", "threads"},
                     SIGINT);
}

TEST_CASE("if only one rank gets the signal then all ranks stop after the same step") {
  const Training training({"-n", "3", "--steps", "1000000"});
  Program program(training.command({"--save", training.path("saved").string()}));
  REQUIRE(program.wait_for("bits/byte"));
  ::kill(program.processes_of_rank(1).front(), SIGTERM);
  const Outcome outcome = program.wait(Seconds(60));
  CHECK(outcome.exit_code == 128 + SIGTERM);
  const std::string step = between(outcome.out, "stopped  after step ", " of");
  CHECK(std::filesystem::exists(training.path("saved") /
                                fmt::format("training-{}.safetensors", step)));
}

TEST_CASE("a second signal ends a run at once and without --save the first one does") {
  // A step takes most of a minute, so both signals arrive in the first one.
  const Command slow = {"-n", "2", "--batch", "3600000", "--accumulate", "150000"};
  for (const std::string backend : {"threads", "tcp"}) {
    for (const bool saves : {true, false}) {
      CAPTURE(backend);
      CAPTURE(saves);
      const Training training(slow);
      const auto folder = training.path("saved");
      Command more = {"--backend", backend};
      if (saves) more.insert(more.end(), {"--save", folder.string()});
      Program program(training.command(more));
      REQUIRE(program.wait_for("sequences of 12 bytes"));
      ::usleep(500'000);  // the step is under way on both ranks
      program.send(SIGINT);
      if (saves) {
        // Two signals that both wait to be delivered are one.
        const auto status = fmt::format("/proc/{}/status", program.pid());
        CHECK(eventually([&] { return contains(read_file(status), "ShdPnd:\t0000000000000000"); }));
        ::usleep(100'000);
        program.send(SIGINT);
      }
      const Outcome outcome = program.wait(Seconds(60));
      CHECK_FALSE(outcome.timed_out);
      CHECK(outcome.survivors == "");
      CHECK((outcome.signal == SIGINT || outcome.exit_code == 128 + SIGINT));
      CHECK_FALSE(std::filesystem::exists(folder / "model.safetensors"));
    }
  }
}

TEST_CASE("a run replaces the model of another run only with --overwrite") {
  const Training training({"--steps", "6"});
  const auto folder = training.path("model");
  REQUIRE(training.run({"--stop-at", "4", "--save", folder.string()}).exit_code == 0);
  const std::string before = read_file(folder / "model.safetensors");
  for (const Command& ranks : {Command{}, Command{"-n", "3"}, Command{"--backend", "threads"}}) {
    Command more = {"--save", folder.string()};
    more.insert(more.end(), ranks.begin(), ranks.end());
    const Outcome refused = training.run(more);
    CHECK(refused.exit_code == 1);
    CHECK(refused.err ==
          fmt::format("ringside: {0} already holds a model of another run, after step 4 of 6: "
                      "continue that with --resume {0}, save in another folder, or replace it with "
                      "--overwrite\n",
                      folder.string()));
    CHECK(read_file(folder / "model.safetensors") == before);
  }
  std::filesystem::remove(folder / "training-4.safetensors");
  CHECK(training.run({"--init", folder.string(), "--save", folder.string()}).exit_code != 0);
  CHECK(read_file(folder / "model.safetensors") == before);
  REQUIRE(training.run({"--save", folder.string(), "--overwrite"}).exit_code == 0);
  CHECK(read_file(folder / "model.safetensors") != before);
  CHECK(std::filesystem::exists(folder / "training-6.safetensors"));
}

TEST_CASE("a run does not save beside the shards of another model") {
  const Training training({"--steps", "1"});
  const auto folder = training.path("sharded");
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model.safetensors.index.json") << "{}";
  std::ofstream(folder / "config.json") << "{}";
  const Outcome refused = training.run({"--save", folder.string()});
  CHECK(refused.exit_code == 1);
  CHECK(
      refused.err ==
      fmt::format("ringside: {} already holds a model: save in another folder, or replace it with "
                  "--overwrite\n",
                  folder.string()));
  CHECK(read_file(folder / "config.json") == "{}");
}

}  // namespace ringside::cli
