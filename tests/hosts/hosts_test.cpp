// A job on two hosts, two ranks each: network namespaces (two_hosts.sh), started as a user would,
// with a launcher on each host.
#include <csignal>
#include <cstdio>
#include <utility>

#include <doctest/doctest.h>

#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

std::vector<std::string> on_two_hosts(const std::string& script) {
  return {"unshare", "--net", "--map-root-user", "bash", TWO_HOSTS, script};
}

// Whether this machine lets a test have networks of its own. Where not, says so in the word that
// ctest takes for "skipped".
bool possible() {
  static const bool works = run_program(on_two_hosts("on_b true")).exit_code == 0;
  if (!works)
    MESSAGE(
        "SKIPPED: needs root, or user namespaces, and network namespaces (unshare --net "
        "--map-root-user; veth)");
  return works;
}

// `launch a COMMAND` starts its ranks on this host, `launch b COMMAND` on the other; `both COMMAND`
// on both, and says how they ended.
std::string launchers(const std::string& master) {
  return fmt::format(R"(
    export RINGSIDE_JOB_KEY=two-hosts RINGSIDE_CONNECT_TIMEOUT=${{CONNECT:-20}}
    launch_on() {{ host=$1; shift; $host {0} launch -n 2 --nnodes 2 --node-rank $NODE --master-addr '{1}' --master-port 29500 -- "$@"; }}
    on_a() {{ "$@"; }}
    a() {{ NODE=0 launch_on on_a "$@"; echo "host a: $?"; }}
    b() {{ NODE=1 launch_on on_b "$@"; echo "host b: $?"; }}
    ringside={0}
  )",
                     ringside_binary, master);
}

Outcome run_hosts(const std::string& master, const std::string& script,
                  Seconds limit = Seconds(60)) {
  return run_program(on_two_hosts(launchers(master) + script), {}, limit);
}

void expect_good_end(const Outcome& outcome) {
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(contains(outcome.out, "host a: 0\n"));
  CHECK(contains(outcome.out, "host b: 0\n"));
  CHECK(outcome.survivors == "");
}

const std::string short_training =
    "$ringside train --backend tcp --steps 3 --sequence 32 --batch 4 --threads 1";

}  // namespace

TEST_CASE("two hosts say hello over IPv4 and over IPv6 with and without brackets") {
  if (!possible()) return;
  for (const std::string master : {"10.77.0.1", "fd77::1", "[fd77::1]"}) {
    CAPTURE(master);
    const auto outcome = run_hosts(master, "a $ringside hello & b $ringside hello; wait $!");
    expect_good_end(outcome);
    CHECK(contains(outcome.out, "[0] 4 ranks over tcp. Each collective on small whole numbers:\n"));
    CHECK(outcome.err == "");
  }
}

TEST_CASE("a job over a slow link ends well") {
  if (!possible()) return;
  const auto outcome = run_hosts(
      "10.77.0.1",
      "tc qdisc add dev wire0 root netem delay 20ms rate 50mbit 2>/dev/null && echo delayed || "
      "tc qdisc add dev wire0 root tbf rate 50mbit burst 32kbit latency 400ms && echo limited; "
      "a " +
          short_training + " & b " + short_training + "; wait $!");
  expect_good_end(outcome);
  CHECK(contains(outcome.out, "limited\n"));
  if (!contains(outcome.out, "delayed\n"))
    MESSAGE("this kernel has no netem: the link was limited to 50 Mbit/s, but not delayed");
}

TEST_CASE("a host that starts seconds later is waited for") {
  if (!possible()) return;
  expect_good_end(
      run_hosts("10.77.0.1", "a $ringside hello & sleep 2.5; b $ringside hello; wait $!"));
}

TEST_CASE("RINGSIDE_INTERFACE says by which network the data goes") {
  if (!possible()) return;
  const std::string train = "a " + short_training + " >/dev/null & b " + short_training +
                            " >/dev/null; wait $!; echo $(came_by wire0) $(came_by wire1) bytes";
  const auto bytes_by = [&](const std::string& variable) {
    const auto outcome = run_hosts("10.77.0.1", variable + train);
    CAPTURE(outcome.err);
    std::pair<long, long> bytes{-1, -1};
    REQUIRE(std::sscanf(outcome.out.c_str(), "%ld %ld bytes", &bytes.first, &bytes.second) == 2);
    return bytes;
  };
  const auto [usual_0, usual_1] = bytes_by("");
  const auto [named_0, named_1] = bytes_by("export RINGSIDE_INTERFACE=wire1; ");
  CHECK(usual_0 > 1000000);
  CHECK(usual_1 < 100000);
  CHECK(named_0 < 100000);  // here the ranks only meet
  CHECK(named_1 > 1000000);
}

TEST_CASE("an interface that does not exist is answered with those that do") {
  if (!possible()) return;
  const auto outcome =
      run_hosts("10.77.0.1", "export RINGSIDE_INTERFACE=eth7 CONNECT=2; a $ringside hello");
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err,
                 "RINGSIDE_INTERFACE=eth7 is not a network interface of this host with an IPv4 "
                 "address, as MASTER_ADDR has; there are: lo (127.0.0.1), wire0 (10.77.0.1), wire1 "
                 "(10.78.0.1)\n"));
}

TEST_CASE(
    "a port where nobody listens and one behind a wall are said to be so with address and time") {
  if (!possible()) return;
  auto outcome = run_hosts("10.77.0.1", "export RINGSIDE_CONNECT_TIMEOUT=2; b $ringside hello");
  CHECK(contains(outcome.err,
                 "ringside: rank 0 is not there: it cannot be reached at 10.77.0.1:29500 within 2 "
                 "s (Connection refused)\n"));
  outcome = run_hosts("fd77::1", "export RINGSIDE_CONNECT_TIMEOUT=2; b $ringside hello");
  CHECK(contains(outcome.err,
                 "ringside: rank 0 is not there: it cannot be reached at [fd77::1]:29500 within 2 "
                 "s (Connection refused)\n"));
  // Answers are dropped on their way, as by a firewall: who knocks hears nothing.
  outcome = run_hosts("10.77.0.1",
                      "export RINGSIDE_CONNECT_TIMEOUT=3; ip route add blackhole 10.77.0.2; a "
                      "$ringside hello & b $ringside hello; wait $!");
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err,
                 "ringside: rank 0 is not there: it cannot be reached at 10.77.0.1:29500 within 3 "
                 "s (Connection timed out)\n"));
  CHECK(contains(outcome.err,
                 "[0] ringside: ranks 2, 3 of 4 never came to 10.77.0.1:29500 within 3 s\n"));
  CHECK(outcome.survivors == "");
}

TEST_CASE("a master address that is not this host's own is said to be none") {
  if (!possible()) return;
  const auto outcome =
      run_hosts("10.77.0.9", "export RINGSIDE_CONNECT_TIMEOUT=1; a $ringside hello");
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err,
                 "rank 0 cannot listen on 10.77.0.9:29500: Cannot assign requested address. "
                 "MASTER_ADDR must be an address of the "
                 "host of rank 0\n"));
}

TEST_CASE("when a host vanishes in the middle of a job all ranks end with a sentence") {
  if (!possible()) return;
  const std::string training =
      "$ringside train --backend tcp --steps 1000000 --sequence 32 --batch 4 --threads 1";
  Program program(on_two_hosts(
      launchers("10.77.0.1") + "export RINGSIDE_TIMEOUT=3; trap 'ip link set wire0 down' USR1; a " +
      training + " & a=$!; b " + training + " & b=$!; wait $a; wait $b; wait $a"));
  REQUIRE(program.wait_for("bits", Seconds(30)));
  program.send(SIGUSR1);
  const auto cut = Clock::now();
  const auto outcome = program.wait(Seconds(40));
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(seconds_since(cut) < 20);  // a deadline of 3 s, and the launcher's patience
  CHECK(contains(outcome.out, "host a: 1\n"));
  CHECK(contains(outcome.out, "host b: 1\n"));
  CHECK(contains(outcome.err,
                 "rank 2, 3 do not answer: stopped, stuck, or busy outside of the collectives"));
  CHECK(contains(outcome.err,
                 "rank 0, 1 do not answer: stopped, stuck, or busy outside of the collectives"));
  for (const char* rank : {"[0]", "[1]", "[2]", "[3]"})
    CHECK(contains(outcome.err, fmt::format("{} ringside: ", rank)));
  CHECK(outcome.survivors == "");
}
