// `ringside launch` as a user sees it: the environment of the ranks, their output, and the end of a
// job.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/clock.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

// `ringside launch OPTIONS -- sh -c SCRIPT`
std::vector<std::string> launch_script(const std::vector<std::string>& options,
                                       const std::string& script) {
  std::vector<std::string> command{ringside_binary, "launch"};
  command.insert(command.end(), options.begin(), options.end());
  for (const char* argument : {"--", "sh", "-c"}) command.emplace_back(argument);
  command.push_back(script);
  return command;
}

using Lines = std::vector<std::string>;

// Ignores signals and prints "ready" once its sleep is there, a child of the shell, like the Python
// under a script.
const std::string stubborn = "trap '' INT TERM; sleep 60 & echo ready; wait";

bool all_ready(Program& program, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (!program.wait_for(fmt::format("[{}] ready\n", rank))) return false;
  }
  return true;
}

// The first process of a rank, which leads its process group; 0 if it is not there.
pid_t shell_of(const Program& program, int rank) {
  for (const pid_t pid : program.processes_of_rank(rank))
    if (::getpgid(pid) == pid) return pid;
  return 0;
}

}  // namespace

TEST_CASE("every rank gets its rank info in the environment") {
  const auto outcome = run_program(launch_script(
      {"-n", "3"},
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $MASTER_ADDR"));
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  CHECK(sorted_lines(outcome.out) == Lines{"[0] 0 3 0 3 0 0 127.0.0.1", "[1] 1 3 1 3 0 0 127.0.0.1",
                                           "[2] 2 3 2 3 0 0 127.0.0.1"});
  CHECK(outcome.survivors == "");
}

TEST_CASE("all ranks of a job get the same port and key and the next job gets others") {
  std::set<std::string> keys;
  for (int job = 0; job < 2; ++job) {
    const auto outcome =
        run_program(launch_script({"-n", "3"}, "echo $MASTER_PORT $RINGSIDE_JOB_KEY"));
    std::set<std::string> of_this_job;
    for (const auto& line : sorted_lines(outcome.out)) of_this_job.insert(line.substr(4));
    REQUIRE(of_this_job.size() == 1);
    const std::string key = of_this_job.begin()->substr(of_this_job.begin()->find(' ') + 1);
    CHECK(key.size() == 32);
    CHECK(key.find_first_not_of("0123456789abcdef") == std::string::npos);
    keys.insert(key);
  }
  CHECK(keys.size() == 2);
}

TEST_CASE("the launcher listens for rank 0 so that nobody takes the port before it") {
  Program job(launch_script({"-n", "2"}, "echo listening $RINGSIDE_LISTENING; sleep 60"));
  REQUIRE(job.wait_for("[0] listening "));
  const std::string from_port = job.out().substr(job.out().find("[0] listening ") + 14);
  int master_port = 0, port = 0, descriptor = 0;
  REQUIRE(std::sscanf(from_port.c_str(), "%d:%d:%d", &master_port, &port, &descriptor) == 3);
  CHECK(master_port != port);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  const FileDescriptor thief(::socket(AF_INET, SOCK_STREAM, 0)),
      rank(::socket(AF_INET, SOCK_STREAM, 0));
  const int yes = 1;
  ::setsockopt(thief.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  CHECK(::bind(thief.get(), generic, sizeof address) != 0);
  CHECK(errno == EADDRINUSE);
  CHECK(::connect(rank.get(), generic, sizeof address) == 0);
  // Only rank 0 has the socket.
  const auto has_it = [&](int number) {
    std::error_code error;
    const auto link = fmt::format("/proc/{}/fd/{}", shell_of(job, number), descriptor);
    return contains(std::filesystem::read_symlink(link, error).string(), "socket:");
  };
  CHECK(has_it(0));
  CHECK_FALSE(has_it(1));
  job.send(SIGTERM);
  CHECK(job.wait().survivors == "");
}

TEST_CASE("two programs in turn meet at the port where the launcher listens") {
  const auto outcome = run_program(launch_script(
      {"-n", "3"},
      fmt::format("{0} hello && {0} hello >/dev/null && echo twice", ringside_binary)));
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  for (int rank = 0; rank < 3; ++rank)
    CHECK(contains(outcome.out, fmt::format("[{}] twice", rank)));
}

TEST_CASE("address, port and key can be given") {
  const std::string script = "echo $MASTER_ADDR $MASTER_PORT $RINGSIDE_JOB_KEY";
  CHECK(run_program(launch_script({"-n", "1", "--master-addr", "::1", "--master-port", "1234",
                                   "--job-key", "k"},
                                  script))
            .out == "[0] ::1 1234 k\n");
  CHECK(run_program(launch_script({"-n", "1"}, script),
                    {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "77"}, {"RINGSIDE_JOB_KEY", "e"}})
            .out == "[0] h 77 e\n");
}

TEST_CASE("the ranks of several nodes are numbered consecutively") {
  const auto outcome =
      run_program(launch_script({"-n", "2", "--nnodes", "3", "--node-rank", "2", "--master-addr",
                                 "node0", "--master-port", "29500"},
                                "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK "
                                "$MASTER_ADDR $MASTER_PORT $RINGSIDE_JOB_KEY"),
                  {{"RINGSIDE_JOB_KEY", "secret"}});
  CHECK(sorted_lines(outcome.out) ==
        Lines{"[4] 4 6 0 2 2 node0 29500 secret", "[5] 5 6 1 2 2 node0 29500 secret"});
}

TEST_CASE("a launcher inside a job does not use the outer job's port and key") {
  const auto outcome = run_program(
      launch_script({"-n", "1"}, "echo $MASTER_PORT $RINGSIDE_JOB_KEY"),
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "77"}, {"RINGSIDE_JOB_KEY", "outer"}});
  CHECK(outcome.exit_code == 0);
  CHECK_FALSE(contains(outcome.out, "[0] 77 "));
  CHECK_FALSE(contains(outcome.out, "outer"));
}

TEST_CASE("arguments after the first double dash belong to the program") {
  CHECK(run_program({ringside_binary, "launch", "-n", "1", "--", "echo", "-n", "3", "--", "--help"})
            .out == "[0] 3 -- --help\n");
}

TEST_CASE("stdout and stderr stay separate and the last line may lack a newline") {
  const auto outcome =
      run_program(launch_script({"-n", "2"}, "echo whole; echo oh >&2; printf partial"));
  CHECK(sorted_lines(outcome.out) == Lines{"[0] partial", "[0] whole", "[1] partial", "[1] whole"});
  CHECK(sorted_lines(outcome.err) == Lines{"[0] oh", "[1] oh"});
}

TEST_CASE("ranks inherit the signal handling that the launcher inherited") {
  const std::vector<std::string> blocked_and_ignored{"grep", "-hE", "Sig(Blk|Ign)",
                                                     "/proc/self/status"};
  std::vector<std::string> under_launcher{ringside_binary, "launch", "-n", "1", "--bare", "--"};
  under_launcher.insert(under_launcher.end(), blocked_and_ignored.begin(),
                        blocked_and_ignored.end());
  CHECK(run_program(under_launcher).out == run_program(blocked_and_ignored).out);
}

TEST_CASE("many lines of many ranks arrive whole and in order") {
  constexpr int ranks = 4;
  constexpr int lines = 20'000;
  const auto outcome =
      run_program({ringside_binary, "launch", "-n", "4", "--", "seq", "1", std::to_string(lines)});
  std::vector<int> next(ranks, 1);
  int wrong = 0;
  std::size_t begin = 0;
  for (std::size_t end; (end = outcome.out.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string line = outcome.out.substr(begin, end - begin);
    const int rank = line.at(1) - '0';
    if (rank < 0 || rank >= ranks ||
        line != fmt::format("[{}] {}", rank, next[static_cast<std::size_t>(rank)]++))
      ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(next == std::vector<int>(ranks, lines + 1));
  CHECK(begin == outcome.out.size());
}

TEST_CASE("ranks read from /dev/null and a bare rank 0 prints without a prefix") {
  const auto outcome = run_program(launch_script({"-n", "2", "--bare"}, "cat; printf hello"));
  CHECK(contains(outcome.out, "hello"));
  CHECK(contains(outcome.out, "[1] hello\n"));
  CHECK_FALSE(contains(outcome.out, "[0]"));
}

TEST_CASE("the launcher names a rank that fails with its exit code and ends the others") {
  const auto outcome = run_program(launch_script(
      {"-n", "4", "--grace", "0.3"}, "if [ $RANK = 1 ]; then exit 3; fi; sleep 60; echo x"));
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.err ==
        "ringside: rank 1 ended with exit code 3\n"
        "ringside: still running after 0.3 s: ranks 0, 2 and 3; sending SIGTERM\n");
  CHECK(outcome.survivors == "");
  CHECK(outcome.seconds < 10);
}

TEST_CASE("the launcher names a killed rank with its signal") {
  Program program(launch_script({"-n", "3", "--grace", "0.3"}, "echo ready; exec sleep 60"));
  REQUIRE(all_ready(program, 3));
  REQUIRE(eventually([&] { return shell_of(program, 2) > 0; }));
  ::kill(shell_of(program, 2), SIGKILL);
  const auto outcome = program.wait();
  CHECK(outcome.exit_code == 128 + SIGKILL);
  CHECK(contains(outcome.err, "ringside: rank 2 was killed by signal 9 (SIGKILL)\n"));
  CHECK(contains(outcome.err, "ranks 0 and 1; sending SIGTERM\n"));
  CHECK(outcome.survivors == "");
}

TEST_CASE("of ranks that end together the launcher names the one that a signal killed") {
  Program program(
      launch_script({"-n", "2"}, "trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done"));
  REQUIRE(all_ready(program, 2));
  const pid_t first = shell_of(program, 0), second = shell_of(program, 1);
  REQUIRE(first > 0);
  REQUIRE(second > 0);
  program.send(SIGSTOP);  // so that it sees both ends at the same time
  ::kill(-first, SIGTERM);
  ::kill(-second, SIGKILL);
  CHECK(eventually([&] { return program.processes_of_rank(0).empty(); }));
  CHECK(eventually([&] { return program.processes_of_rank(1).empty(); }));
  program.send(SIGCONT);
  const auto outcome = program.wait();
  CHECK(contains(outcome.err, "ringside: rank 1 was killed by signal 9 (SIGKILL)\n"));
  CHECK_FALSE(contains(outcome.err, "ringside: rank 0"));
}

TEST_CASE("within the grace period the other ranks can print their own errors") {
  const auto outcome = run_program(launch_script(
      {"-n", "2", "--grace", "30"},
      "if [ $RANK = 1 ]; then echo first >&2; exit 7; fi; sleep 2; echo second >&2; exit 1"));
  CHECK(outcome.exit_code == 7);
  CHECK(outcome.err == "[1] first\nringside: rank 1 ended with exit code 7\n[0] second\n");
  CHECK(outcome.seconds < 15);  // the grace period ends with the last rank
}

TEST_CASE("a rank that ignores SIGTERM is killed") {
  const auto outcome = run_program(launch_script(
      {"-n", "2", "--grace", "0.2"},
      "if [ $RANK = 1 ]; then sleep 2; exit 5; fi; trap '' TERM; sleep 60; sleep 60"));
  CHECK(outcome.exit_code == 5);
  CHECK(contains(outcome.err, "ringside: still running after 0.2 s: rank 0; sending SIGTERM\n"));
  CHECK(contains(outcome.err, "ringside: still running after 2 s: rank 0; sending SIGKILL\n"));
  CHECK(outcome.survivors == "");
}

TEST_CASE("a program that cannot be executed is reported with the reason") {
  auto outcome = run_program({ringside_binary, "launch", "-n", "2", "--", "no-such-program"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err == "ringside: cannot execute no-such-program: No such file or directory\n");
  CHECK(outcome.survivors == "");
  outcome = run_program({ringside_binary, "launch", "-n", "2", "--", "/dev/null"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err == "ringside: cannot execute /dev/null: Permission denied\n");
}

TEST_CASE("if one rank cannot be started no rank remains") {
  const auto outcome = run_program(
      {"sh", "-c", "ulimit -n 50; exec \"$0\" launch -n 40 -- sleep 60", ringside_binary});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err ==
        "ringside: the launcher may not have more files open, and needs two pipes for each rank: "
        "raise the limit (ulimit -n 4096), or use fewer ranks\n");
  CHECK(outcome.survivors == "");
}

TEST_CASE("the children of a rank end with it") {
  const auto outcome = run_program(launch_script({"-n", "2"}, "sleep 60 & echo done"));
  CHECK(outcome.exit_code == 0);
  CHECK(sorted_lines(outcome.out) == Lines{"[0] done", "[1] done"});
  CHECK(outcome.survivors == "");
  CHECK(outcome.seconds < 10);
}

TEST_CASE("a signal to the launcher reaches all ranks and no rank remains") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    Program program(launch_script(
        {"-n", "3"},
        "trap 'echo asked; exit 0' INT TERM HUP; echo ready; while :; do sleep 0.05; done"));
    REQUIRE(all_ready(program, 3));
    program.send(signal);
    const auto outcome = program.wait();
    CHECK(outcome.exit_code == 128 + signal);
    for (int rank = 0; rank < 3; ++rank)
      CHECK(contains(outcome.out, fmt::format("[{}] asked\n", rank)));
    CHECK(contains(outcome.err, ": ending all ranks (once more to kill them)\n"));
    CHECK(outcome.survivors == "");
    CHECK(outcome.seconds < 10);
  }
}

TEST_CASE("stubborn ranks are killed after the grace period or at the second signal") {
  Program waits(launch_script({"-n", "2", "--grace", "0.3"}, stubborn));
  REQUIRE(all_ready(waits, 2));
  waits.send(SIGINT);
  auto outcome = waits.wait();
  CHECK(outcome.exit_code == 128 + SIGINT);
  CHECK(outcome.err ==
        "ringside: SIGINT: ending all ranks (once more to kill them)\n"
        "ringside: still running after 0.3 s: ranks 0 and 1; sending SIGKILL\n");
  CHECK(outcome.survivors == "");

  Program twice(launch_script({"-n", "2", "--grace", "30"}, stubborn));
  REQUIRE(all_ready(twice, 2));
  twice.send(SIGINT);
  REQUIRE(twice.wait_for("ending all ranks"));
  twice.send(SIGINT);
  outcome = twice.wait();
  CHECK(outcome.exit_code == 128 + SIGINT);
  CHECK(outcome.survivors == "");
  CHECK(outcome.seconds < 10);
}

TEST_CASE("nothing outlives a launcher that is killed with SIGKILL") {
  Program program(launch_script({"-n", "3"}, stubborn));
  REQUIRE(all_ready(program, 3));
  // A shell and a sleep for each rank, the launcher, its orphan reaper.
  CHECK(eventually([&] { return program.processes().size() >= 3 * 2 + 2; }));
  program.send(SIGKILL);
  const auto outcome = program.wait();
  CHECK(outcome.signal == SIGKILL);
  CHECK(outcome.survivors == "");
}

TEST_CASE("a job ends when nobody reads its output") {
  const auto outcome =
      run_program({"sh", "-c", "\"$0\" launch -n 2 -- yes | head -n 1", ringside_binary});
  CHECK(sorted_lines(outcome.out).size() == 1);
  CHECK(outcome.survivors == "");
  CHECK(outcome.seconds < 10);
}

TEST_CASE("a launcher whose output is not read still reacts to signals") {
  Program program({ringside_binary, "launch", "-n", "2", "--grace", "0.2", "--", "yes"});
  const auto start = Deadline::after(Seconds(5));
  while (program.processes().size() < 3 && !start.expired()) ::usleep(10'000);
  ::usleep(300'000);  // the pipes fill up: nobody reads the output before wait()
  program.send(SIGTERM);
  const auto deadline = Deadline::after(Seconds(5));
  while (!program.processes().empty() && !deadline.expired()) ::usleep(10'000);
  CHECK(program.processes().empty());
  CHECK(program.wait().exit_code == 128 + SIGTERM);
}

namespace {

// A folder for the temporary files of a test.
struct TemporaryFolder {
  TemporaryFolder()
      : path(std::filesystem::temp_directory_path() /
             fmt::format("ringside-launcher-test-{}", ::getpid())) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directory(path);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::vector<std::filesystem::path> content() const {
    return {std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()};
  }
  std::filesystem::path path;
};

std::vector<std::string> training() {
  return {ringside_binary, "train",      "-n", "3",         "--steps",
          "100000",        "--sequence", "32", "--threads", "1"};
}

}  // namespace

TEST_CASE("after a failure the last line names the folder of the flight records") {
  const TemporaryFolder folder;
  Program program(training(), {{"TMPDIR", folder.path.string()}});
  REQUIRE(program.wait_for("bits"));
  REQUIRE(!program.processes_of_rank(1).empty());
  ::kill(program.processes_of_rank(1).front(), SIGKILL);
  const auto outcome = program.wait();
  CAPTURE(outcome.err);
  REQUIRE(folder.content().size() == 1);
  const auto records = folder.content().front().string();
  CHECK(outcome.err.ends_with(
      fmt::format("ringside: what each rank was doing: ringside postmortem {}\n", records)));
  CHECK(outcome.survivors == "");
  const auto postmortem = run_program({ringside_binary, "postmortem", records});
  CHECK(postmortem.exit_code == 0);
  CHECK(contains(postmortem.out, "rank 1 left no record: killed"));
}

TEST_CASE("a job leaves no folder if it ends well, is interrupted, or fails without records") {
  const TemporaryFolder folder;
  const Variables temporary{{"TMPDIR", folder.path.string()}};
  CHECK(run_program({ringside_binary, "hello", "-n", "3"}, temporary).err == "");
  CHECK(folder.content().empty());
  CHECK(run_program(launch_script({"-n", "2"}, "exit 3"), temporary).exit_code == 3);
  CHECK(folder.content().empty());
  for (int i = 0; i < 3; ++i) {
    Program program(training(), temporary);
    REQUIRE(program.wait_for("bits"));
    program.send(SIGINT);
    const auto outcome = program.wait();
    CHECK(outcome.exit_code == 128 + SIGINT);
    CHECK_FALSE(contains(outcome.err, "postmortem"));
    CHECK(folder.content().empty());
  }
}

TEST_CASE("a killed launcher leaves no folder, also if a rank has just failed") {
  const TemporaryFolder folder;
  bool recorded = false;
  // Rank 0 writes no record if it waits for the others to connect again, for the next size.
  for (int attempt = 0; attempt < 5 && !recorded; ++attempt) {
    Program program({ringside_binary, "bench", "all_reduce", "-n", "3", "--backends", "tcp",
                     "--bytes", "4B,64KB,1MB,4MB,16MB,32MB"},
                    {{"TMPDIR", folder.path.string()}});
    REQUIRE(program.wait_for("3 ranks on"));
    // A stopped rank keeps the job alive until the launcher is killed.
    ::kill(program.processes_of_rank(2).front(), SIGSTOP);
    ::kill(program.processes_of_rank(1).front(), SIGKILL);
    const Deadline patience = Deadline::after(Seconds(3));
    while (!recorded && !patience.expired()) {
      recorded = !folder.content().empty();
      ::usleep(10'000);
    }
    ::kill(program.pid(), SIGKILL);
    CHECK(eventually([&] { return folder.content().empty(); }));
    CHECK(program.wait().signal == SIGKILL);
  }
  CHECK(recorded);
}

TEST_CASE("requested flight records are kept and a folder of the user is not touched") {
  const TemporaryFolder folder;
  Program program(training(), {{"TMPDIR", folder.path.string()}});
  REQUIRE(program.wait_for("bits"));
  for (int rank = 0; rank < 3; ++rank) ::kill(program.processes_of_rank(rank).front(), SIGUSR1);
  ::usleep(300'000);
  program.send(SIGINT);
  const auto outcome = program.wait();
  REQUIRE(folder.content().size() == 1);
  CHECK(contains(outcome.err,
                 fmt::format("ringside postmortem {}\n", folder.content().front().string())));

  const auto named = folder.path / "named";
  const auto script = launch_script({"-n", "1"}, "echo $RINGSIDE_FLIGHT_DIR");
  CHECK(run_program(script, {{"RINGSIDE_FLIGHT_DIR", named.string()}}).out ==
        fmt::format("[0] {}\n", named.string()));
}
