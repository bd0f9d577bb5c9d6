// `ringside step context`, `step experts` and `step mesh`: what they print and write.
#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::testing;
using tests::contains;

namespace {

Outcome step(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ringside_binary, "step"});
  return run_program(arguments);
}

}  // namespace

TEST_CASE("step context shows who holds which tokens, and the step of each block") {
  const Outcome zigzag = step({"context", "-n", "2", "--zigzag", "--sequence", "8"});
  CHECK(zigzag.exit_code == 0);
  CHECK(zigzag.err == "");
  CHECK(contains(zigzag.out,
                 "queries\\keys  0   1   2   3\n"
                 " 0 of rank 0  0\\  .   .   .\n"
                 " 1 of rank 1  1   0\\  .   .\n"
                 " 2 of rank 1  1   0   0\\  .\n"
                 " 3 of rank 0  0   1   1   0\\\n"));
  CHECK(contains(zigzag.out, "All ranks compute the same."));
  const Outcome contiguous = step({"context", "-n", "4", "--sequence", "4096"});
  CHECK(contains(contiguous.out,
                 "The last rank computes 6.99 times as much as the first: 2 c - 1 = 7"));
  std::istringstream lines(step({"context", "-n", "8", "--zigzag"}).out);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
  CHECK(contains(step({"context", "-n", "4", "--zigzag", "--sequence", "12"}).err,
                 "sequences of 12 tokens do not divide into 8 equal pieces"));
}

TEST_CASE("step context writes its figures and a picture") {
  const TemporaryDirectory directory;
  const auto svg = directory.path() / "blocks.svg";
  const Outcome outcome =
      step({"context", "-n", "3", "--sequence", "30", "--json", "-", "--svg", svg.string()});
  CHECK(outcome.exit_code == 0);
  const auto json = Json::parse(outcome.out.substr(outcome.out.find('{')));
  CHECK(json["order"] == "contiguous");
  CHECK(json["by_rank"].size() == 3);
  CHECK(json["blocks"].size() == 9);
  const std::string text = read_file(svg);
  CHECK(text.starts_with("<svg"));
  CHECK(contains(text, "rank 2 in step 1: queries of piece 2, keys of piece 1"));
}

TEST_CASE("step experts shows choices, counts and the rows that ranks exchange") {
  const Outcome outcome =
      step({"experts", "-n", "2", "--experts", "4", "--tokens", "3", "--json", "-"});
  CHECK(outcome.exit_code == 0);
  const auto json = Json::parse(outcome.out.substr(outcome.out.find('{')));
  std::int64_t sent = 0, computed = 0, counted = 0, to_other = 0;
  for (const auto& rank : json["by_rank"]) {
    sent += rank["rows_sent"].get<std::int64_t>();
    computed += rank["rows_computed"].get<std::int64_t>();
  }
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (std::size_t expert = 0; expert < 4; ++expert) {
      const auto count = json["counts"][rank][expert].get<std::int64_t>();
      const auto chosen = json["chosen"][rank];
      CHECK(count == std::count(chosen.begin(), chosen.end(), expert));
      counted += count;
      if (expert / 2 != rank) to_other += count;
    }
  CHECK(counted == 2 * 3 * 2);  // every choice of every token
  CHECK(computed == counted);
  CHECK(sent == to_other);
  // The first of two ranks has the experts that a skewed router prefers.
  const Outcome skewed =
      step({"experts", "-n", "2", "--experts", "4", "--tokens", "64", "--skew", "4"});
  CHECK(contains(skewed.out, "The busiest rank computes 1.99 times the mean"));
  for (const Outcome& each : {step({"experts", "-n", "4"}), skewed}) {
    std::istringstream lines(each.out);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
  }
  CHECK(contains(step({"experts", "-n", "3"}).err,
                 "8 experts cannot be divided evenly among 3 ranks: choose --experts 9"));
}

TEST_CASE("step mesh shows every axis, and the groups of a mesh") {
  const Outcome axes = step({"mesh"});
  CHECK(axes.exit_code == 0);
  for (const char* axis :
       {"\npp    pipeline", "\ndp    data", "\nfsdp  data parallel that shards",
        "\ncp    context parallel", "\ntp    tensor parallel", "\nep    expert parallel"})
    CHECK(contains("\n" + axes.out, axis));
  const Outcome hybrid = step({"mesh", "--mesh", "dp=2,fsdp=4"});
  CHECK(contains(hybrid.out, "groups     0 4 | 1 5 | 2 6 | 3 7\n"));
  CHECK(contains(hybrid.out, "groups     0 1 2 3 | 4 5 6 7\n"));
  for (const Outcome& outcome : {axes, hybrid}) {
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
  }
  CHECK(contains(step({"mesh", "--mesh", "xp=2"}).err, "there is no axis 'xp'"));
}
