// Failures of ranks that are processes: killed, stopped, or never started. The survivors name the
// rank to blame and exit.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cli/run_program.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

const std::string worker = ALL_REDUCE_WORKER;

// The ranks of one job, without a launcher that would end them.
class Job {
 public:
  // Ranks from `started` on do not come.
  Job(const std::string& backend, int size, const Variables& more = {},
      const std::string& count = "25000000", std::optional<int> started = {},
      const std::vector<std::string>& arguments = {})
      : port_(tests::free_port()) {
    for (int rank = 0; rank < started.value_or(size); ++rank) {
      Variables variables = {
          {"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port_)},
          {"RINGSIDE_JOB_KEY", "failures"}};
      for (const auto& [name, value] : more) variables[name] = value;
      std::vector<std::string> command{worker, count, backend};
      command.insert(command.end(), arguments.begin(), arguments.end());
      ranks_.push_back(std::make_unique<Program>(command, variables));
    }
  }
  Program& rank(int r) { return *ranks_[static_cast<std::size_t>(r)]; }
  std::uint16_t port() const { return port_; }

  void wait_until_ready() {
    for (auto& each : ranks_) REQUIRE(each->wait_for("ready", Seconds(30)));
  }

 private:
  std::uint16_t port_;
  std::vector<std::unique_ptr<Program>> ranks_;
};

// How many sockets on a port are open or half open. TIME_WAIT does not count: the kernel keeps it
// for a minute after a connection has closed.
int sockets_on(std::uint16_t port) {
  int found = 0;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      const bool on_port = line.find(fmt::format(":{:04X} ", port)) != std::string::npos;
      found += on_port && line.find(" 06 ") == std::string::npos;
    }
  }
  return found;
}

void expect_end(Program& rank, const std::string& text, double within) {
  const Outcome outcome = rank.wait(Seconds(within));
  CAPTURE(outcome.err);
  CHECK(!outcome.timed_out);
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.err, text));
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);  // one sentence
  CHECK(outcome.survivors == "");
}

void each_backend(const std::function<void(const std::string&)>& test) {
  for (const char* backend : {"tcp", "shm"}) {
    CAPTURE(backend);
    test(backend);
  }
}

}  // namespace

TEST_CASE("a rank killed in the middle of a large all-reduce is named by every survivor at once") {
  each_backend([](const std::string& backend) {
    Job job(backend, 4);
    job.wait_until_ready();
    job.rank(2).send(SIGKILL);
    for (const int survivor : {0, 1, 3})
      expect_end(job.rank(survivor), "rank 2 is gone: its connection closed without a goodbye", 5);
    CHECK(job.rank(2).wait().signal == SIGKILL);
    CHECK(sockets_on(job.port()) == 0);
  });
}

// Holds a process as a debugger does, from a process of its own: the debugger's.
class Debugger {
 public:
  explicit Debugger(pid_t held) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool attached = ::ptrace(PTRACE_SEIZE, held, nullptr, nullptr) == 0 &&
                            ::ptrace(PTRACE_INTERRUPT, held, nullptr, nullptr) == 0;
      if (::write(ends[1], &attached, sizeof attached) != sizeof attached) ::_exit(1);
      for (;;) ::pause();
    }
    REQUIRE(::read(ends[0], &attached_, sizeof attached_) == sizeof attached_);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Debugger() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  bool attached() const { return attached_; }

 private:
  pid_t pid_;
  bool attached_ = false;
};

TEST_CASE(
    "a rank that a debugger holds is waited for beyond the deadline, and goes on afterwards") {
  each_backend([](const std::string& backend) {
    Job job(backend, 3, {{"RINGSIDE_TIMEOUT", "3"}}, "1000");
    job.wait_until_ready();
    {
      const Debugger debugger(job.rank(2).pid());
      if (!debugger.attached()) {
        MESSAGE("SKIPPED: this machine does not let a process trace another one");
        return;
      }
      for (const int r : {0, 1}) REQUIRE(job.rank(r).wait_for("goes on waiting", Seconds(30)));
      CHECK(!job.rank(0).wait_for("nothing came to rank", Seconds(4)));  // another deadline
      CHECK(contains(job.rank(0).err(), ": a debugger holds rank 2"));
    }
    CHECK(!job.rank(0).wait_for("nothing came to rank", Seconds(4)));
    job.rank(2).send(SIGKILL);
    for (const int r : {0, 1}) CHECK(contains(job.rank(r).wait().err, "rank 2 is gone"));
  });
}

TEST_CASE("a rank killed while the ranks meet is named at once by those that wait") {
  each_backend([](const std::string& backend) {
    Job job(backend, 4, {}, "25000000", 3);  // ranks 0 to 2 wait for rank 3
    // Rank 0 listens, and ranks 1 and 2 are connected with it: two sockets each.
    for (int i = 0; i < 500 && sockets_on(job.port()) < 1 + 2 * 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // and say who they are
    job.rank(2).send(SIGKILL);
    for (const int survivor : {0, 1})
      expect_end(job.rank(survivor), "rank 2 came and is gone, before all ranks were connected", 5);
  });
}

// The descriptors and mappings of a process that belong to a group: sockets, and shared memory.
std::string connections_of(pid_t process) {
  std::string found;
  for (const auto& each : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process)))
    if (const std::string to = std::filesystem::read_symlink(each.path());
        contains(to, "socket") || contains(to, "ringside messages"))
      found += fmt::format("{} -> {}\n", each.path().string(), to);
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  for (std::string line; std::getline(maps, line);)
    if (contains(line, "ringside messages")) found += line + "\n";
  return found;
}

// The child that rank 1 of a job says it has; it outlives that rank.
pid_t child_of(Program& rank) {
  REQUIRE(rank.wait_for("child ", Seconds(30)));
  REQUIRE(rank.wait_for("\n", Seconds(30)));
  return std::stoi(rank.out().substr(rank.out().find("child ") + 6));
}

TEST_CASE("a killed rank whose child lives on is named at once, and the child has no connection") {
  for (const int size : {2, 3, 4})
    for (const std::string how : {"forks", "executes"})
      each_backend([&](const std::string& backend) {
        CAPTURE(size);
        CAPTURE(how);
        const auto folder = std::filesystem::temp_directory_path() /
                            fmt::format("ringside-children-{}", ::getpid());
        std::filesystem::remove_all(folder);
        Job job(backend, size, {{"RINGSIDE_FLIGHT_DIR", folder.string()}}, "1000", {}, {how});
        job.wait_until_ready();
        Program& rank = job.rank(1);
        const pid_t child = child_of(rank);
        CHECK(connections_of(child) == "");
        CHECK(connections_of(rank.pid()) != "");
        rank.send(SIGKILL);
        for (int survivor = 0; survivor < size; ++survivor)
          if (survivor != 1)
            expect_end(job.rank(survivor),
                       "rank 1 is gone: its connection closed without a goodbye", 5);
        CHECK(::kill(child, SIGUSR1) == 0);  // it has lived until now, and writes no record
        CHECK(eventually([&] { return rank.processes().empty(); }));
        CHECK(std::filesystem::exists(folder / "0.flight"));
        CHECK_FALSE(std::filesystem::exists(folder / "1.flight"));
        std::filesystem::remove_all(folder);
        if (how == "executes") return;
        const auto refusal = fmt::format(
            "process {} made this group, and process {} is its child, which has neither the "
            "threads nor the connections of the group: call it in process {}, or make a group in "
            "the child",
            rank.pid(), child, rank.pid());
        for (const char* call : {"barrier", "barrier_async", "send", "wait"})
          CHECK(contains(rank.out(), fmt::format("\n{}: {}\n", call, refusal)));
        CHECK(contains(rank.out(), "\ndone: 0\n"));
      });
}

TEST_CASE("a rank that forks while the ranks meet, and is killed, is named at once") {
  each_backend([](const std::string& backend) {
    Job job(backend, 4, {}, "1000", 3, {"early"});  // ranks 0 to 2 wait for rank 3
    CHECK(connections_of(child_of(job.rank(1))) == "");
    job.rank(1).send(SIGKILL);
    for (const int survivor : {0, 2})
      expect_end(job.rank(survivor), "rank 1 came and is gone, before all ranks were connected", 5);
  });
}

TEST_CASE("a killed rank 0 is named as well") {
  each_backend([](const std::string& backend) {
    Job job(backend, 3);
    job.wait_until_ready();
    job.rank(0).send(SIGKILL);
    for (const int survivor : {1, 2})
      expect_end(job.rank(survivor), "rank 0 is gone: its connection closed without a goodbye", 5);
  });
}

TEST_CASE("a stopped rank is named at the deadline, and learns the cause when it continues") {
  each_backend([](const std::string& backend) {
    Job job(backend, 4, {{"RINGSIDE_TIMEOUT", "2"}});
    job.wait_until_ready();
    job.rank(1).send(SIGSTOP);
    for (const int survivor : {0, 2, 3})
      expect_end(job.rank(survivor),
                 "rank 1 does not answer: stopped, stuck, or busy outside of the collectives", 8);
    job.rank(1).send(SIGCONT);
    expect_end(job.rank(1), "rank 1 does not answer", 5);
  });
}

TEST_CASE("a rank that is stopped for a short time does no harm") {
  each_backend([](const std::string& backend) {
    Job job(backend, 3, {{"RINGSIDE_TIMEOUT", "20"}}, "1000");
    job.wait_until_ready();
    job.rank(1).send(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    job.rank(1).send(SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    job.rank(2).send(SIGKILL);
    for (const int survivor : {0, 1}) expect_end(job.rank(survivor), "rank 2 is gone", 5);
  });
}

TEST_CASE("all others name a rank that is never started at the deadline") {
  const auto port = tests::free_port();
  std::vector<std::unique_ptr<Program>> ranks;
  for (const int rank : {0, 2})
    ranks.push_back(std::make_unique<Program>(std::vector<std::string>{worker},
                                              Variables{{"RANK", std::to_string(rank)},
                                                        {"WORLD_SIZE", "3"},
                                                        {"MASTER_PORT", std::to_string(port)},
                                                        {"RINGSIDE_CONNECT_TIMEOUT", "2"}}));
  for (auto& rank : ranks)
    expect_end(*rank, fmt::format("rank 1 of 3 never came to 127.0.0.1:{} within 2 s", port), 8);
  CHECK(sockets_on(port) == 0);
}

TEST_CASE("a rank that may not open enough files says so and what to do") {
#if defined(__SANITIZE_ADDRESS__)
  // This sanitizer opens a pipe to check pointers: without descriptors it reports false errors.
  MESSAGE("SKIPPED: UndefinedBehaviorSanitizer itself needs to open files");
  return;
#endif
  for (const char* backend : {"tcp", "shm"})
    // Too few before it connects to rank 0, while it does, and while it connects to all.
    for (const int limit : {6, 7, 8}) {
      CAPTURE(backend);
      CAPTURE(limit);
      const auto script = fmt::format(
          "export WORLD_SIZE=2 RINGSIDE_CONNECT_TIMEOUT=3 MASTER_PORT={}; RANK=0 {} 1 {} "
          "2>/dev/null & "
          "ulimit -n {}; RANK=1 RINGSIDE_CONNECT_TIMEOUT=20 {} 1 {}; wait",
          tests::free_port(), worker, backend, limit, worker, backend);
      const auto outcome = run_program({"bash", "-c", script});
      CAPTURE(outcome.err);
      const std::string limited = fmt::format(
          "rank 1 may not have more than {} files and connections open, and needs up to two "
          "connections to every other rank and a few files: raise the limit (ulimit -n 4096), or "
          "use fewer ranks\n",
          limit);
      CHECK(outcome.err == limited);
      CHECK(!outcome.timed_out);
      CHECK(outcome.survivors == "");
    }
}

TEST_CASE("ranks that find no free port say so and what to do") {
  const std::vector<std::string> apart = {"unshare", "--net", "--map-root-user", "sh", "-c"};
  auto command = apart;
  command.emplace_back(
      "ip link set lo up && echo '40000 40003' > /proc/sys/net/ipv4/ip_local_port_range");
  if (run_program(command).exit_code != 0) {
    MESSAGE(
        "SKIPPED: this machine does not let a test have a network of its own (unshare --net "
        "--map-root-user)");
    return;
  }
  command.back() += fmt::format(
      "; export WORLD_SIZE=4 RINGSIDE_CONNECT_TIMEOUT=1; for rank in 0 1 2 3; do RANK=$rank {} 1 & "
      "done; wait",
      worker);
  const auto outcome = run_program(command);
  CAPTURE(outcome.err);
  CHECK(contains(
      outcome.err,
      " found no free port on its host: those from 40000 to 40003 are taken, or kept for a minute "
      "after their "
      "connection has ended. Wait, or widen the range (sysctl net.ipv4.ip_local_port_range)\n"));
  CHECK(!outcome.timed_out);
  CHECK(outcome.survivors == "");
}

TEST_CASE("ranks on a host without loopback say so at once") {
  const std::vector<std::string> apart = {"unshare", "--net", "--map-root-user"};
  auto command = apart;
  command.emplace_back("true");
  if (run_program(command).exit_code != 0) {
    MESSAGE(
        "SKIPPED: this machine does not let a test have a network of its own (unshare --net "
        "--map-root-user)");
    return;
  }
  for (const char* backend : {"tcp", "shm"}) {
    CAPTURE(backend);
    command = apart;
    command.insert(command.end(),
                   {ringside_binary, "launch", "-n", "2", "--", worker, "1", backend});
    const auto outcome = run_program(command);
    CAPTURE(outcome.err);
    CHECK(contains(outcome.err, "[1] rank 1 cannot reach 127.0.0.1:"));
    CHECK(contains(outcome.err,
                   " on its own host: the loopback interface is down. Start it (ip link set lo "
                   "up), or set MASTER_ADDR to another address of this host\n"));
    CHECK(outcome.exit_code == 1);
    CHECK_FALSE(outcome.timed_out);  // ranks have a minute to connect
    CHECK(outcome.survivors == "");
  }
}

TEST_CASE("ranks share memory whatever size /dev/shm has") {
  // As in a container, which has 64 MB by default.
  const std::vector<std::string> apart = {"unshare", "--mount", "--map-root-user", "sh", "-c"};
  const auto run = [&](const std::string& script) {
    auto command = apart;
    command.push_back(fmt::format("mount -t tmpfs -o size=4k tmpfs /dev/shm && {{ {}; }}", script));
    return run_program(command);
  };
  if (run("true").exit_code != 0) {
    MESSAGE(
        "SKIPPED: this machine does not let a test mount a /dev/shm of its own (unshare --mount "
        "--map-root-user)");
    return;
  }
  const Outcome outcome = run(ringside_binary +
                              " train -n 8 --mesh dp=2,tp=2,pp=2 --backend shm --threads 1 "
                              "--steps 1 --batch 8 --layers 2 --sequence 16 && ls -A /dev/shm");
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("ranks in different containers are told that they cannot share memory") {
  const std::vector<std::string> apart = {"unshare", "--pid", "--fork", "--kill-child",
                                          "--map-root-user"};
  auto command = apart;
  command.emplace_back("true");
  if (run_program(command).exit_code != 0) {
    MESSAGE(
        "SKIPPED: this machine does not let a test have process numbers of its own (unshare --pid "
        "--map-root-user)");
    return;
  }
  const auto port = tests::free_port();
  const auto variables = [&](const char* rank) {
    return Variables{{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", std::to_string(port)}};
  };
  command = apart;
  for (const auto& argument : {worker, std::string("1"), std::string("shm")})
    command.push_back(argument);
  Program zero({worker, "1", "shm"}, variables("0")), one(command, variables("1"));
  for (Program* rank : {&zero, &one})
    expect_end(*rank, "rank 1 runs in another container (process-ID namespace) than rank 0", 10);
}

TEST_CASE(
    "every survivor writes its flight record, and the postmortem names the rank that did not") {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("ringside-flights-{}", ::getpid());
  std::filesystem::remove_all(folder);
  {
    Variables variables;
    variables["RINGSIDE_FLIGHT_DIR"] = folder.string();
    Job job("tcp", 3, variables);
    job.wait_until_ready();
    job.rank(1).send(SIGKILL);
    for (const int survivor : {0, 2}) expect_end(job.rank(survivor), "rank 1 is gone", 5);
  }
  const Outcome outcome = run_program({ringside_binary, "postmortem", folder.string()});
  CAPTURE(outcome.out);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "rank 0   failed in call #"));
  CHECK(contains(outcome.out, "rank 1 left no record: killed, or stuck, or on another host"));
  CHECK(contains(outcome.out, "look at rank 1"));
  std::filesystem::remove_all(folder);
}
