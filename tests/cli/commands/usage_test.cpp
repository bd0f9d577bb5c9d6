// Help, version, and the errors for wrong arguments.

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "base/json.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside::testing;
using ringside::Json;

namespace {

Outcome ringside_with(std::vector<std::string> arguments, const Variables& variables = {}) {
  arguments.insert(arguments.begin(), ringside_binary);
  return run_program(arguments, variables);
}

// Checks that the program prints this usage error on stderr, and nothing else.
void check_usage_error(const std::vector<std::string>& arguments, const std::string& sentence,
                       const std::string& hint) {
  CAPTURE(sentence);
  const auto outcome = ringside_with(arguments);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out == "");
  CHECK(outcome.err == "ringside: " + sentence + "\nTry: " + hint + "\n");
}

// What stands on stderr, without the warning about a BLAS that is slow on this processor.
std::string errors_of(const Outcome& outcome) {
  if (!contains(outcome.err, "multiplies with its kernel")) return outcome.err;
  return outcome.err.substr(outcome.err.find('\n') + 1);
}

}  // namespace

TEST_CASE("a backend of GPUs given as --backend is an error that names --device-backend") {
  for (const std::string name : {"cuda_ipc", "nccl"})
    check_usage_error({"train", "-n", "2", "--device", "cuda", "--backend", name, "--steps", "1"},
                      "--backend: expected auto, tcp, shm, threads, got '" + name +
                          "'; between GPUs gradients go over --device-backend " + name,
                      "ringside train --help");
}

TEST_CASE("with --json - only the figures go to standard output") {
  const std::vector<std::vector<std::string>> commands = {
      {"bench", "all_reduce", "-n", "2", "--bytes", "64B", "--backends", "threads", "--repeat",
       "2"},
      {"bench", "train", "--model", "tiny", "--batch", "1", "--sequence", "8", "--steps", "1",
       "--threads", "1"},
      {"bench", "ddp", "--model", "tiny", "--batch", "1", "--sequence", "8", "--steps", "1",
       "--strategies", "flat"},
      {"bench", "zero", "--model", "tiny", "--batch", "1", "--sequence", "8", "--steps", "1",
       "--strategies", "zero1", "--backend", "threads"},
      {"step", "all_reduce", "-n", "2"},
      {"prove", "all_reduce", "--max-size", "4"}};
  for (const auto& command : commands) {
    for (const std::string path : {"-", "/dev/stdout"}) {
      std::vector<std::string> all{ringside_binary};
      all.insert(all.end(), command.begin(), command.end());
      CAPTURE(fmt::format("{}", fmt::join(all, " ")));
      const auto table = run_program(all);
      CHECK(errors_of(table) == "");
      all.insert(all.end(), {"--json", path});
      const auto outcome = run_program(all);
      CHECK(outcome.exit_code == 0);
      CHECK(Json::parse_if_possible(outcome.out));
      const auto head = [](const std::string& text) { return text.substr(0, text.find('\n', 1)); };
      CHECK(head(errors_of(outcome)) == head(table.out));
    }
  }
}

TEST_CASE("help and version go to stdout and exit with 0") {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{}, {"--help"}, {"launch", "--help"}}) {
    const auto outcome = ringside_with(arguments);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.err == "");
    CHECK(contains(outcome.out, "Usage: ringside"));
  }
  CHECK(ringside_with({"--version"}).out.starts_with("ringside 0."));
}

TEST_CASE("the help of every command fits into 80 columns") {
  for (const std::string command : {"",           "step",       "step tensor",   "step pipeline",
                                    "prove",      "synthesize", "msccl",         "prove pipeline",
                                    "hello",      "bench",      "bench train",   "bench ddp",
                                    "bench zero", "bench mesh", "bench kernels", "train",
                                    "compare",    "generate",   "eval",          "tokenize",
                                    "account",    "simulate",   "launch",        "watch",
                                    "status",     "postmortem", "timeline",      "nccl",
                                    "course"}) {
    CAPTURE(command);
    const auto outcome =
        run_program({"sh", "-c", "\"$0\" " + command + " --help", ringside_binary});
    CHECK(outcome.exit_code == 0);
    for (const std::string& line : sorted_lines(outcome.out)) {
      CAPTURE(line);
      CHECK(line.size() <= 80);
    }
  }
}

TEST_CASE("the help of train is short and --help-all has every option") {
  const auto brief = ringside_with({"train", "--help"}),
             whole = ringside_with({"train", "--help-all"});
  const auto lines = [](const std::string& text) { return sorted_lines(text).size(); };
  CHECK(lines(brief.out) < 70);
  CHECK(lines(whole.out) > 2 * lines(brief.out));
  for (const std::string option : {"--ranks", "--save", "--help-all", "Examples:"}) {
    CAPTURE(option);
    CHECK(contains(brief.out, option));
    CHECK(contains(whole.out, option));
  }
  for (const std::string option : {"--weight-decay", "--overwrite", "--bucket-mb"}) {
    CAPTURE(option);
    CHECK_FALSE(contains(brief.out, option));
    CHECK(contains(whole.out, option));
  }
  for (const std::string& line : sorted_lines(whole.out)) CHECK_MESSAGE(line.size() <= 80, line);
}

TEST_CASE("tables fit into 80 columns") {
  const std::vector<std::vector<std::string>> commands = {
      {"prove", "--max-size", "16"},
      {"prove", "pipeline", "--schedule", "1f1b"},
      {"bench", "all_reduce", "-n", "2", "--bytes", "64B,1MB", "--repeat", "2"},
      {"bench", "ddp", "--model", "tiny", "--batch", "1", "--sequence", "8", "--steps", "1",
       "--link", "1Gbps,50us"},
      {"bench", "zero", "--model", "tiny", "--batch", "1", "--sequence", "8", "--steps", "1"},
      {"bench", "mesh", "-n", "2", "--model", "tiny", "--sequence", "8", "--steps", "1"}};
  for (const auto& command : commands) {
    CAPTURE(fmt::format("{}", fmt::join(command, " ")));
    auto arguments = command;
    arguments.insert(arguments.begin(), ringside_binary);
    const auto outcome = run_program(arguments, {}, ringside::Seconds(60));
    CHECK(outcome.exit_code == 0);
    for (const std::string& line : sorted_lines(outcome.out)) {
      std::size_t columns = 0;  // not bytes: a drawn line is one column and three bytes
      for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
      CHECK_MESSAGE(columns <= 80, line);
    }
  }
}

TEST_CASE("a wrong argument is reported in one sentence with a hint") {
  check_usage_error({"lunch"}, "there is no command 'lunch' (did you mean launch?)",
                    "ringside --help");
  check_usage_error({"42"}, "there is no command '42'", "ringside --help");
  check_usage_error({"train", "--bacend", "tcp", "--stps", "3"},
                    "there is no option --bacend (did you mean --backend?)",
                    "ringside train --help");
  check_usage_error({"bench", "ddp", "--modle", "lab"},
                    "there is no option --modle (did you mean --model?)", "ringside bench --help");
  check_usage_error({"train", "tiny"}, "'tiny' is one argument too many", "ringside train --help");
  check_usage_error({"train", "--parallel", "fsdp"},
                    "--parallel: expected single, naive, flat, overlap, bucketed, "
                    "zero1_broadcast, zero1, zero2, zero3, bf16_wire, powersgd, local_sgd, diloco, "
                    "got 'fsdp' (did you mean zero3?)",
                    "ringside train --help");
  check_usage_error({"launch", "--", "true"}, "--ranks is required, or --elastic",
                    "ringside launch --help");
  check_usage_error({"launch", "-n", "2"}, "PROGRAM is required", "ringside launch --help");
  check_usage_error({"launch", "-n", "2", "--"}, "PROGRAM is required", "ringside launch --help");
  check_usage_error({"launch", "-n", "0", "--", "true"},
                    "--ranks: at least 1 rank is needed, not 0", "ringside launch --help");
  check_usage_error({"launch", "-n", "two", "--", "true"}, "--ranks: a number is expected, not two",
                    "ringside launch --help");
  check_usage_error({"launch", "-n", "2", "--master-port", "70000", "--", "true"},
                    "--master-port: a number from 1 to 65535 is expected, not 70000",
                    "ringside launch --help");
  check_usage_error({"train", "--lr", "abc"}, "--lr: a number is expected, not abc",
                    "ringside train --help");
  check_usage_error({"train", "--steps", "1.5"}, "--steps: a whole number is expected, not 1.5",
                    "ringside train --help");
  check_usage_error({"train", "--lr"}, "--lr needs a value: RATE", "ringside train --help");
  check_usage_error({"simulate", "all_reduce", "-n", "8,x"}, "--ranks: a number is expected, not x",
                    "ringside simulate --help");
  check_usage_error({"step", "-n", "2", "-n", "3"}, "--ranks takes one value, not 2",
                    "ringside step --help");
  check_usage_error({"train", "--bucket-mb", "0"},
                    "--bucket-mb: a number above 0 is expected, not 0", "ringside train --help");
  check_usage_error({"launch", "-n", "2", "--nnodes", "2", "--", "true"},
                    "which of the 2 nodes is this? Give --node-rank 0 to 1",
                    "ringside launch --help");
  check_usage_error({"launch", "-n", "2", "--nnodes", "2", "--node-rank", "2", "--", "true"},
                    "--node-rank 2 does not exist: with --nnodes 2 the nodes are 0 to 1",
                    "ringside launch --help");
}

TEST_CASE("a launch on several nodes names what they must agree on") {
  const std::vector<std::string> start{"launch", "-n", "2", "--nnodes", "2", "--node-rank", "1"};
  const auto error_with = [&](std::vector<std::string> more) {
    auto arguments = start;
    more.insert(more.end(), {"--", "true"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = ringside_with(arguments);
    CHECK(outcome.exit_code == 1);
    return outcome.err;
  };
  CHECK(error_with({}) ==
        "ringside: 2 nodes need the address of node 0: give --master-addr or set MASTER_ADDR\n");
  CHECK(error_with({"--master-addr", "a"}) ==
        "ringside: 2 nodes need a common secret, the job key: set RINGSIDE_JOB_KEY to the same "
        "random text on each node\n");
  CHECK(error_with({"--master-addr", "a", "--job-key", "k"}) ==
        "ringside: 2 nodes need a port of node 0 to meet at: give --master-port or set "
        "MASTER_PORT\n");
}

TEST_CASE("a command ends silently when nobody reads its output") {
  for (const std::string command :
       {"--help", "prove --max-size 16", "hello -n 3", "step all_reduce -n 32",
        "bench all_reduce -n 2 --bytes 1KB,2KB,4KB --backends tcp --repeat 7"}) {
    CAPTURE(command);
    const auto outcome = run_program(
        {"bash", "-c", "\"$0\" " + command + " | head -n 1 > /dev/null; echo \"${PIPESTATUS[0]}\"",
         ringside_binary},
        {}, ringside::Seconds(60));
    CHECK(outcome.err == "");
    // 141: SIGPIPE. 0: the command had written everything before the reader ended.
    CHECK((outcome.out == "141\n" || outcome.out == "0\n"));
    CHECK(outcome.survivors == "");
  }
}
