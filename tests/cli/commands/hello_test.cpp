// `ringside hello`: its output, and its errors when the ranks cannot meet.
#include <memory>
#include <regex>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "tests/cli/run_program.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

std::unique_ptr<Program> hello(const Variables& variables) {
  return std::make_unique<Program>(std::vector<std::string>{ringside_binary, "hello"}, variables);
}

// The program fails with exactly this sentence on stderr and leaves no process.
void expect_refusal(Program& program, const std::string& sentence) {
  const Outcome outcome = program.wait(Seconds(60));
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err == fmt::format("{}\n", sentence));
  CHECK(outcome.survivors == "");
}

}  // namespace

TEST_CASE("hello shows the same numbers over every transport") {
  for (const std::string backend : {"tcp", "shm", "threads"}) {
    CAPTURE(backend);
    const Outcome outcome =
        run_program({ringside_binary, "hello", "-n", "4", "--backend", backend});
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.err == "");
    CHECK(outcome.survivors == "");
    CHECK(contains(
        outcome.out,
        fmt::format("4 ranks over {}. Each collective on small whole numbers:\n", backend)));
    CHECK(contains(outcome.out,
                   "all_reduce: every rank gets the sum\n"
                   "          before                after\n"
                   "  rank 0     5   8   3   3      17  18  20  22\n"
                   "  rank 1     5   3   7   9      17  18  20  22\n"
                   "  rank 2     6   7   5   1      17  18  20  22\n"
                   "  rank 3     1   0   5   9      17  18  20  22\n"));
    CHECK(contains(outcome.out,
                   "gather: rank 0 gets the numbers of all ranks\n"
                   "          before      after\n"
                   "  rank 0     5         5   5   6   1\n"
                   "  rank 1     5         -   -   -   -\n"));
    for (const std::string name : {"scatter", "all_to_all", "send, recv", "split"})
      CHECK(contains(outcome.out, "\n" + name + ": "));
    CHECK(contains(outcome.out, "barrier: no rank leaves before every rank has arrived\n"));
    CHECK(contains(outcome.out,
                   "\nplaces: each rank is a worker of a node, which is a machine; the world size "
                   "is 4\n  rank 0  node "));
    CHECK(std::regex_search(
        outcome.out, std::regex("\n  rank 3  node \\S+, local rank 3, local world size 4\n$")));
  }
}

TEST_CASE("rank 0 reports in one sentence that the port is taken") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor other(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = other.local_endpoint().port();
  const auto rank = hello(rank_variables(0, 2, port));
  expect_refusal(*rank, fmt::format("ringside: rank 0 cannot listen on 127.0.0.1:{}: the port is "
                                    "taken. Choose another with MASTER_PORT (or "
                                    "--master-port)",
                                    port));
}

TEST_CASE("every rank reports in one sentence that the world sizes differ") {
  const auto port = tests::free_port();
  const auto zero = hello(rank_variables(0, 2, port)), one = hello(rank_variables(1, 3, port));
  const std::string cause =
      "the ranks disagree on the world size: rank 0 has WORLD_SIZE=2, but rank 1 has "
      "WORLD_SIZE=3";
  expect_refusal(*zero, fmt::format("ringside: {}", cause));
  expect_refusal(*one, fmt::format("ringside: rank 0 refuses: {}", cause));
}

TEST_CASE("a rank with the key of another job is turned away and the job ends well") {
  const auto port = tests::free_port();
  const auto zero = hello(rank_variables(0, 2, port)),
             stranger = hello(rank_variables(1, 2, port, "another"));
  expect_refusal(*stranger,
                 fmt::format("ringside: what listens at 127.0.0.1:{} did not prove to rank 1 that "
                             "it has the key of this job: it is not rank 0, or it has another "
                             "RINGSIDE_JOB_KEY or another version of Ringside",
                             port));
  const auto one = hello(rank_variables(1, 2, port));
  CHECK(one->wait().exit_code == 0);
  const Outcome outcome = zero->wait();
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "rank 0 turned away a connection from 127.0.0.1:"));
}

TEST_CASE("rank 0 names the ranks that never started in one sentence") {
  const auto port = tests::free_port();
  auto variables = rank_variables(0, 3, port);
  variables.insert_or_assign("RINGSIDE_CONNECT_TIMEOUT", std::string("1"));
  const auto zero = hello(variables);
  expect_refusal(
      *zero, fmt::format("ringside: ranks 1, 2 of 3 never came to 127.0.0.1:{} within 1 s", port));
}
