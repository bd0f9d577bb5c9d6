// A rank of `ringside bench` that is stopped is named after RINGSIDE_TIMEOUT, whoever waits for it:
// a contender, the bare ring, or the processes between two contenders.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <latch>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "bench/backends/machine_limits.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::testing;

TEST_CASE("a rank of bench that is stopped is named after RINGSIDE_TIMEOUT") {
  for (const int milliseconds : {700, 1300}) {  // in another turn each time
    CAPTURE(milliseconds);
    Program program({ringside_binary, "bench", "all_reduce", "-n", "3", "--backends", "threads,tcp",
                     "--bytes", "4B,64KB,1MB"},
                    {{"RINGSIDE_TIMEOUT", "3"}, {"RINGSIDE_WARN_AFTER", "0"}});
    REQUIRE(program.wait_for("3 ranks on"));  // they are connected
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    for (const pid_t pid : program.processes_of_rank(1)) ::kill(pid, SIGSTOP);
    const Outcome outcome = program.wait(Seconds(40));
    CAPTURE(outcome.err);
    CHECK_FALSE(outcome.timed_out);
    CHECK(outcome.exit_code == 1);
    // A rank that is at the barrier between two turns does not answer in the contender's group.
    const bool names_it = contains(outcome.err, "rank 1 does not answer") ||
                          contains(outcome.err, "ranks 0 and 1 do not answer") ||
                          contains(outcome.err, "ranks 1 and 2 do not answer") ||
                          contains(outcome.err, "nothing came from rank 1 for 3.0 s") ||
                          contains(outcome.err, "rank 1 took nothing for 3.0 s");
    CHECK(names_it);
    CHECK(outcome.survivors == "");
  }
}

TEST_CASE("the bare ring names its silent neighbour after RINGSIDE_TIMEOUT") {
  ::setenv("RINGSIDE_TIMEOUT", "1", 1);
  const auto port = tests::free_port();
  std::latch rank_0_ended(1);
  const auto outcomes = tests::on_threads(2, [&](int rank) {
    const auto ring = cli::make_bare_ring(tests::rank_info_of(rank, 2, port));
    collectives::Call call;
    call.collective = collectives::Collective::all_reduce;
    call.count = 1000;
    std::vector<float> input(1000), output(1000);
    if (rank == 1) return rank_0_ended.wait();  // stays connected, and takes no part
    try {
      ring->run(call, input.data(), output.data());
    } catch (...) {
      rank_0_ended.count_down();
      throw;
    }
    rank_0_ended.count_down();
  });
  ::unsetenv("RINGSIDE_TIMEOUT");
  CHECK(outcomes[0] ==
        "the bare ring of rank 0: nothing came from rank 1 for 1.0 s (RINGSIDE_TIMEOUT)");
}
