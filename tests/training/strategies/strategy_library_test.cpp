// `ringside train --parallel NAME.so`: a parallel strategy from a shared library.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/cli/run_program.hpp"

namespace ringside::training {
namespace {

using namespace testing;

const std::string own_strategy = RINGSIDE_OWN_STRATEGY;
const std::string no_strategy = RINGSIDE_NO_STRATEGY;

TEST_CASE("a strategy of one's own trains as naive does, to the bit") {
  const Training training({"--steps", "3", "--optimizer", "sgd", "--clip", "0"});
  for (const std::string ranks : {"2", "3", "4"}) {
    for (const std::string backend : {"threads", "shm", "tcp"}) {
      CAPTURE(ranks);
      CAPTURE(backend);
      const auto own = training.path("own" + ranks + backend),
                 naive = training.path("naive" + ranks + backend);
      const auto run = [&](const std::string& strategy, const std::filesystem::path& dump) {
        return training.run(
            {"-n", ranks, "--backend", backend, "--parallel", strategy, "--dump", dump.string()});
      };
      const Outcome outcome = run(own_strategy, own);
      CHECK(outcome.err == "");
      REQUIRE(outcome.exit_code == 0);
      CHECK(contains(outcome.out, "over " + backend + ", own_strategy.so, "));
      REQUIRE(run("naive", naive).exit_code == 0);
      const char* last = "step0003.safetensors";
      CHECK((read_file(own / last) == read_file(naive / last)));
    }
  }
}

TEST_CASE(
    "functions of tensor parallel and a schedule of one's own train as Ringside's do, to the bit") {
  const Training training({"--steps", "3", "--optimizer", "sgd", "--clip", "0", "-n", "4",
                           "--layers", "2", "--mesh", "pp=2,tp=2", "--micro-batches", "4"});
  const auto trained = [&](const std::string& name, const Command& options) {
    const auto dump = training.path(name);
    Command command = options;
    command.insert(command.end(), {"--dump", dump.string()});
    const Outcome outcome = training.run(command);
    CHECK(outcome.err == "");
    REQUIRE(outcome.exit_code == 0);
    return read_file(dump / "step0003.safetensors");
  };
  const std::string expected = trained("ours", {});
  CHECK((trained("own", {"--tensor-parallel", own_strategy, "--schedule", own_strategy}) ==
         expected));
  CHECK((trained("wrong", {"--tensor-parallel", no_strategy}) != expected));
}

TEST_CASE("libraries for a mesh are refused before any rank starts") {
  const Training training({"--steps", "1", "-n", "2", "--layers", "2"});
  const auto refused = [&](const Command& options) {
    const Outcome outcome = training.run(options);
    CHECK(outcome.exit_code != 0);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(contains(refused({"--mesh", "pp=2", "--schedule", no_strategy}),
                 "the schedule " + no_strategy + " is not right: "));
  CHECK(contains(refused({"--mesh", "tp=2", "--tensor-parallel", "missing.so"}),
                 "cannot load the tensor parallel functions missing.so: "));
  CHECK(contains(refused({"--tensor-parallel", own_strategy}),
                 "--tensor-parallel needs ranks that share matrices: add --mesh tp=2"));
  CHECK(contains(
      refused({"--mesh", "tp=2", "--tensor-parallel", own_strategy, "--sequence-parallel"}),
      "--tensor-parallel names functions of whole sequences: leave out "
      "--sequence-parallel"));
}

TEST_CASE("a library that has no strategy or is none is refused before any rank starts") {
  const Training training({"--steps", "1", "-n", "2"});
  const auto refused = [&](const std::string& library) {
    const Outcome outcome = training.run({"--parallel", library});
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(refused(no_strategy) == "ringside: " + no_strategy +
                                    " has no parallel strategy: expected a variable "
                                    "ringside_strategy, as shown in "
                                    "training/strategies/group_strategy.hpp\n");
  CHECK(refused("missing.so")
            .starts_with("ringside: cannot load the parallel strategy missing.so: "));
  const std::string text = training.path("text.so").string();
  std::ofstream(text) << "This is no library.\n";
  CHECK(contains(refused(text), "cannot load the parallel strategy " + text + ": "));
}

}  // namespace
}  // namespace ringside::training
