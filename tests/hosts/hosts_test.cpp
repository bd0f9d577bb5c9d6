// A job on two hosts with two ranks each, started by a launcher on each host. The hosts are network
// namespaces (two_hosts.sh).
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <utility>

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

std::vector<std::string> on_two_hosts(const std::string& script) {
  return {"unshare", "--net", "--map-root-user", "bash", TWO_HOSTS, script};
}

// Whether a test may create network namespaces here. If not, prints the word by which ctest
// recognizes a skipped test.
bool possible() {
  static const bool works = run_program(on_two_hosts("on_b true")).exit_code == 0;
  if (!works)
    MESSAGE(
        "SKIPPED: needs root, or user namespaces, and network namespaces (unshare --net "
        "--map-root-user; veth)");
  return works;
}

// Shell functions: `a COMMAND` launches the ranks of host a, `b COMMAND` those of host b. Each
// prints the exit status of its launcher.
std::string launchers(const std::string& master) {
  return fmt::format(R"(
    export RINGSIDE_JOB_KEY=two-hosts RINGSIDE_CONNECT_TIMEOUT=${{CONNECT:-20}}
    launch_on() {{
      host=$1; shift
      $host "${{knows[@]}}" "$names" {0} launch ${{restarts:-}} -n 2 --nnodes 2 \
        --node-rank $NODE --master-addr '{1}' --master-port 29500 -- "$@"
    }}
    on_a() {{ "$@"; }}
    a() {{ NODE=0 names=${{names_a:-}} launch_on on_a "$@"; echo "host a: $?"; }}
    b() {{ NODE=1 names=${{names_b:-}} launch_on on_b "$@"; echo "host b: $?"; }}
    ringside={0}
  )",
                     ringside_binary, master);
}

Outcome run_hosts(const std::string& master, const std::string& script,
                  Seconds limit = Seconds(60)) {
  return run_program(on_two_hosts(launchers(master) + script), {}, limit);
}

void expect_success(const Outcome& outcome) {
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
    expect_success(outcome);
    CHECK(contains(outcome.out, "[0] 4 ranks over tcp. Each collective on small whole numbers:\n"));
    // A rank's number on its node, of which each has two ranks.
    for (int rank = 0; rank < 4; ++rank)
      CHECK(std::regex_search(
          outcome.out,
          std::regex(fmt::format("rank {}  node \\S+, local rank {}, local world size 2\n", rank,
                                 rank % 2))));
    CHECK(outcome.err == "");
  }
}

TEST_CASE("hosts meet by a name that leads nowhere on some of them") {
  if (!possible()) return;
  const std::string known = "10.77.0.1 nodea";
  for (const auto& [on_a, on_b] : std::vector<std::pair<std::string, std::string>>{
           {"127.0.1.1 nodea", known},  // as Debian and Ubuntu write a host's own name
           {"127.0.1.1 nodea", "fd77::1 nodea"},
           {"::1 nodea", known},
           {"::1 nodea\\n" + known, known},
           {known, known + "\\n127.0.1.1 nodea"},
           {"fd77::9 nodea\\n" + known, "fd77::9 nodea\\n" + known},
           {known + "\\n10.99.0.9 nodea", known + "\\n10.99.0.9 nodea"}}) {
    CAPTURE(on_a);
    CAPTURE(on_b);
    const auto outcome = run_hosts(
        "nodea",
        fmt::format("export RINGSIDE_CONNECT_TIMEOUT=4 names_a='{}' names_b='{}'; a $ringside "
                    "hello & b $ringside hello; wait $!",
                    on_a, on_b));
    expect_success(outcome);
    CHECK(contains(outcome.out, "[0] 4 ranks over tcp. Each collective on small whole numbers:\n"));
    CHECK(outcome.err == "");
  }
}

TEST_CASE("on a host whose own name is 127.0.1.1 groups connect and interfaces are selected") {
  if (!possible()) return;
  const std::string train = short_training + " --mesh dp=2,tp=2 >/dev/null";
  for (const auto& [variable, cable] :
       {std::pair("", "wire0"), std::pair("export RINGSIDE_INTERFACE=wire1; ", "wire1")}) {
    const auto outcome = run_hosts(
        "nodea", fmt::format("{}names_a='127.0.1.1 nodea' names_b='10.77.0.1 nodea'; a {} & b {}; "
                             "wait $!; came_by {}",
                             variable, train, train, cable));
    CHECK(outcome.err == "");
    REQUIRE(outcome.out != "");
    CHECK(std::stol(outcome.out) > 1000000);
  }
}

TEST_CASE(
    "a rank says at once that MASTER_ADDR is a loopback address of another host than rank 0") {
  if (!possible()) return;
  const std::string advice =
      " is a loopback address, which leads each host to itself. If the ranks run on several hosts, "
      "set MASTER_ADDR (or --master-addr) to the address of rank 0 in their network\n";
  Program program(on_two_hosts(
      launchers("nodea") +
      "names_a='10.77.0.1 nodea' names_b='127.0.1.1 nodea' RINGSIDE_CONNECT_TIMEOUT=8; a "
      "$ringside hello & b $ringside hello; wait $!"));
  CHECK(
      program.wait_for("[2] ringside: rank 2 finds nobody at 127.0.1.1:29500 (Connection "
                       "refused). MASTER_ADDR=nodea (127.0.1.1 on this host)" +
                           advice,
                       Seconds(5)));
  CHECK(!contains(program.err(), "within"));
  auto outcome = program.wait();
  CAPTURE(outcome.err);
  CHECK(
      contains(outcome.err,
               "ringside: rank 0 is not there: it cannot be reached at 127.0.1.1:29500 within 8 s "
               "(Connection refused). MASTER_ADDR=nodea (127.0.1.1 on this host)" +
                   advice));
  CHECK(contains(outcome.err,
                 "[0] ringside: ranks 2, 3 of 4 never came to 10.77.0.1:29500 within "
                 "8 s\n"));

  outcome = run_hosts("127.0.0.1",
                      "RINGSIDE_CONNECT_TIMEOUT=4; a $ringside hello & b $ringside hello; wait $!");
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err,
                 "[0] ringside: ranks 2, 3 did not come yet. MASTER_ADDR=127.0.0.1" + advice));
  CHECK(contains(outcome.err,
                 "[0] ringside: ranks 2, 3 of 4 never came to 127.0.0.1:29500 within 4 s. "
                 "MASTER_ADDR=127.0.0.1" +
                     advice));
  CHECK(contains(outcome.err,
                 "rank 2 finds nobody at 127.0.0.1:29500 (Connection refused). "
                 "MASTER_ADDR=127.0.0.1" +
                     advice));
}

TEST_CASE("a rank whose interface is a loopback one is refused where another host needs it") {
  if (!possible()) return;
  const auto outcome =
      run_hosts("10.77.0.1",
                "on_a() { RINGSIDE_INTERFACE=lo \"$@\"; }; a $ringside hello & b $ringside "
                "hello; wait $!");
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err, "[0] ringside: rank 0 listens at 127.0.0.1:"));
  CHECK(contains(outcome.err, "[3] ringside: rank 0 refuses: rank 0 listens at 127.0.0.1:"));
  CHECK(contains(outcome.err,
                 ", a loopback address, which rank 2 on another host cannot reach: set "
                 "RINGSIDE_INTERFACE on the host of rank 0 to a network interface that the other "
                 "hosts reach\n"));
}

TEST_CASE("a job over a slow link succeeds") {
  if (!possible()) return;
  const auto outcome = run_hosts(
      "10.77.0.1",
      "tc qdisc add dev wire0 root netem delay 20ms rate 50mbit 2>/dev/null && echo delayed || "
      "tc qdisc add dev wire0 root tbf rate 50mbit burst 32kbit latency 400ms && echo limited; "
      "a " +
          short_training + " & b " + short_training + "; wait $!");
  expect_success(outcome);
  CHECK(contains(outcome.out, "limited\n"));
  if (!contains(outcome.out, "delayed\n"))
    MESSAGE("this kernel has no netem: the link was limited to 50 Mbit/s, but not delayed");
}

TEST_CASE("a job waits for a host that starts seconds later") {
  if (!possible()) return;
  expect_success(
      run_hosts("10.77.0.1", "a $ringside hello & sleep 2.5; b $ringside hello; wait $!"));
}

// The file of a ring over 4 ranks in which neighbours are never on one host: 0, 2, 1, 3.
void write_alternating_ring(const std::filesystem::path& file) {
  REQUIRE(run_program({ringside_binary, "step", "ring_all_reduce", "-n", "4", "--json", file})
              .exit_code == 0);
  const std::vector<int> place{0, 2, 1, 3};
  Json ring = Json::parse(read_file(file));
  const Json schedules = ring["schedules"];
  for (std::size_t rank = 0; rank < place.size(); ++rank) {
    auto& own = ring["schedules"][place[rank]] = schedules[rank];
    for (auto& step : own["steps"])
      for (const auto& [part, peer] : {std::pair("send", "to"), std::pair("receive", "from")})
        if (step.contains(part)) step[part][peer] = place[step[part][peer].get<std::size_t>()];
  }
  std::ofstream(file) << ring;
}

TEST_CASE("hierarchical all-reduce sends 2 n over the link of two hosts, a ring 3 n or 6 n") {
  if (!possible()) return;
  TemporaryDirectory folder;
  const std::string alternating = folder.path() / "alternating.json";
  write_alternating_ring(alternating);
  constexpr double calls = 5, count = 1000000;
  const std::string reduce = fmt::format("{} {} {}", REDUCE_ON_HOSTS, calls, count);
  for (const auto& [algorithm, times] :
       {std::pair<std::string, double>{"hierarchical", 2}, {"ring", 3}, {alternating, 6}}) {
    CAPTURE(algorithm);
    const auto outcome = run_hosts(
        "10.77.0.1",
        fmt::format(
            "export RINGSIDE_ALGORITHM={}; a {} & b {}; wait $!; echo passed: $(passed_by wire0)",
            algorithm == alternating ? algorithm : "all_reduce=" + algorithm, reduce, reduce));
    expect_success(outcome);
    const std::size_t counted = outcome.out.find("passed: ");
    REQUIRE(counted != std::string::npos);
    const double bytes = std::stod(outcome.out.substr(counted + 8));
    // Headers of packets, and the connections of the job.
    CHECK(bytes / (calls * count * sizeof(float)) >= times);
    CHECK(bytes / (calls * count * sizeof(float)) < times * 1.03);
  }
}

TEST_CASE("hierarchical all-reduce is faster than a ring where a link of two hosts is slow") {
  if (!possible()) return;
  TemporaryDirectory folder;
  const std::string alternating = folder.path() / "alternating.json",
                    figures = folder.path() / "figures.json";
  write_alternating_ring(alternating);
  const std::string bench = fmt::format(
      "$ringside bench all_reduce -n 4 --backends tcp --bytes 2MB --warmup 1 --repeat 3 "
      "--algorithm hierarchical,ring,{} --json {}",
      alternating, figures);
  const std::string limit =
      "tc qdisc add dev wire0 root tbf rate 200mbit burst 256kb latency 400ms";
  const auto outcome = run_hosts("10.77.0.1", fmt::format("{} && on_b {} && echo limited; "
                                                          "a {} & b {}; wait $!",
                                                          limit, limit, bench, bench));
  expect_success(outcome);
  CHECK(contains(outcome.out, "limited\n"));
  const Json written = Json::parse(read_file(figures));
  std::vector<double> seconds;
  for (const auto& row : written.is_array() ? written : written.at("results")) {
    CHECK(row.at("wrong") == 0);
    seconds.push_back(row.at("time_us"));
  }
  REQUIRE(seconds.size() == 3);
  CHECK(seconds[0] < seconds[1]);  // 2 n to 3 n
  CHECK(seconds[1] < seconds[2]);  // 3 n to 6 n
}

TEST_CASE("RINGSIDE_INTERFACE selects the network for the data") {
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
  CHECK(named_0 < 100000);  // only the rendezvous
  CHECK(named_1 > 1000000);
}

TEST_CASE("an unknown interface is refused with a list of those that exist") {
  if (!possible()) return;
  const auto outcome =
      run_hosts("10.77.0.1", "export RINGSIDE_INTERFACE=eth7 CONNECT=2; a $ringside hello");
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err,
                 "RINGSIDE_INTERFACE=eth7 is not a network interface of this host with an IPv4 "
                 "address, as MASTER_ADDR has; there are: lo (127.0.0.1), wire0 (10.77.0.1), wire1 "
                 "(10.78.0.1)\n"));
}

TEST_CASE("an unreachable rank 0 is reported with its address, the time and the cause") {
  if (!possible()) return;
  auto outcome = run_hosts("10.77.0.1", "export RINGSIDE_CONNECT_TIMEOUT=2; b $ringside hello");
  CHECK(contains(outcome.err,
                 "ringside: rank 0 is not there: it cannot be reached at 10.77.0.1:29500 within 2 "
                 "s (Connection refused)\n"));
  outcome = run_hosts("fd77::1", "export RINGSIDE_CONNECT_TIMEOUT=2; b $ringside hello");
  CHECK(contains(outcome.err,
                 "ringside: rank 0 is not there: it cannot be reached at [fd77::1]:29500 within 2 "
                 "s (Connection refused)\n"));
  // Replies are dropped, as by a firewall: a connection attempt gets no answer.
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

TEST_CASE("rank 0 refuses a MASTER_ADDR that is not an address of its host") {
  if (!possible()) return;
  const auto outcome =
      run_hosts("10.77.0.9", "export RINGSIDE_CONNECT_TIMEOUT=1; a $ringside hello");
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err,
                 "rank 0 cannot listen on 10.77.0.9:29500: Cannot assign requested address. "
                 "MASTER_ADDR must be an address of the host of rank 0\n"));
}

TEST_CASE("both launchers start their ranks again and the job goes on from its checkpoint") {
  if (!possible()) return;
  const TemporaryDirectory folder;
  const std::string saved = folder.path() / "saved", metrics = folder.path() / "metrics";
  // As docs/elastic.md has it: what is started again resumes where there is a checkpoint.
  const std::string script = fmt::format(
      "set -- --save {0} --steps 60 --sequence 32 --batch 4 --layers 1 --d-model 64\n"
      "[ -e {0}/model.safetensors ] && set -- --resume {0}\n"
      "exec $ringside train \"$@\" --parallel zero2 --save-every 2 --threads 1 --metrics {1}\n",
      saved, metrics);
  folder.write("again.sh", script);
  const std::string ranks = "sh " + (folder.path() / "again.sh").string();
  Program program(
      on_two_hosts("restarts='--restarts 1'; " + launchers("10.77.0.1") +
                   "export ringside; tc qdisc add dev wire0 root netem delay 20ms 2>/dev/null; a " +
                   ranks + " & a=$!; b " + ranks + " & b=$!; wait $a; wait $b"));
  REQUIRE(eventually([&] { return std::filesystem::exists(saved + "/model.safetensors"); }));
  for (const pid_t pid : program.processes_of_rank(3)) ::kill(pid, SIGKILL);
  const Outcome outcome = program.wait();
  expect_success(outcome);
  const std::string again = "ringside: starting all ranks again (1 of 1)\n";
  const std::size_t first = outcome.err.find(again);
  REQUIRE(first != std::string::npos);
  CHECK(outcome.err.find(again, first + 1) != std::string::npos);  // the other launcher, too
  CHECK(contains(outcome.out, "resumed  after step "));
  std::istringstream rows(read_file(metrics));
  int step = 0;
  for (std::string line; std::getline(rows, line);) {
    const auto row = Json::parse(line);
    if (row.contains("loss")) CHECK(row.at("step") == ++step);
  }
  CHECK(step == 60);
}

TEST_CASE("when a host disappears in the middle of a job all ranks end with a sentence") {
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
  CHECK(seconds_since(cut) < 20);  // a timeout of 3 s, and the time that the launcher waits
  CHECK(contains(outcome.out, "host a: 1\n"));
  CHECK(contains(outcome.out, "host b: 1\n"));
  CHECK(
      contains(outcome.err,
               "ranks 2 and 3 do not answer: stopped, stuck, or busy outside of the collectives"));
  CHECK(
      contains(outcome.err,
               "ranks 0 and 1 do not answer: stopped, stuck, or busy outside of the collectives"));
  for (const char* rank : {"[0]", "[1]", "[2]", "[3]"})
    CHECK(contains(outcome.err, fmt::format("{} ringside: ", rank)));
  CHECK(outcome.survivors == "");
}
