// Failures of ranks that are processes: killed, stopped, or never started. The survivors name the one to blame and end by
// themselves.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "tests/cli/run_program.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

const std::string worker = ALL_REDUCE_WORKER;

// The ranks of one job, started one by one, with no launcher to end them.
class Job {
 public:
  Job(const std::string& backend, int size, const Variables& more = {}, const std::string& count = "25000000")
      : port_(tests::free_port()) {
    for (int rank = 0; rank < size; ++rank) {
      Variables variables = {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(size)},
                             {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(size)},
                             {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port_)},
                             {"RINGSIDE_JOB_KEY", "failures"}};
      for (const auto& [name, value] : more) variables[name] = value;
      ranks_.push_back(std::make_unique<Program>(std::vector<std::string>{worker, count, backend}, variables));
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

// Sockets on a port that are open or half open; TIME_WAIT, the kernel's own memory of a connection that was closed, is not counted.
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

std::vector<std::string> names_in_shared_memory() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.push_back(entry.path().filename());
  return names;
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

TEST_CASE("a killed rank 0 is named as well") {
  each_backend([](const std::string& backend) {
    Job job(backend, 3);
    job.wait_until_ready();
    job.rank(0).send(SIGKILL);
    for (const int survivor : {1, 2}) expect_end(job.rank(survivor), "rank 0 is gone: its connection closed without a goodbye", 5);
  });
}

TEST_CASE("a stopped rank is named at the deadline and hears of it when it goes on") {
  each_backend([](const std::string& backend) {
    Job job(backend, 4, {{"RINGSIDE_TIMEOUT", "2"}});
    job.wait_until_ready();
    job.rank(1).send(SIGSTOP);
    for (const int survivor : {0, 2, 3})
      expect_end(job.rank(survivor), "rank 1 does not answer: stopped, stuck, or busy outside of the collectives", 8);
    job.rank(1).send(SIGCONT);
    expect_end(job.rank(1), "rank 1 does not answer", 5);
  });
}

TEST_CASE("a stopped rank that goes on in time does no harm") {
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

TEST_CASE("a rank that is never started is named by all others at the deadline") {
  const auto port = tests::free_port();
  std::vector<std::unique_ptr<Program>> ranks;
  for (const int rank : {0, 2})
    ranks.push_back(std::make_unique<Program>(std::vector<std::string>{worker}, Variables{{"RANK", std::to_string(rank)},
                                                                                          {"WORLD_SIZE", "3"},
                                                                                          {"MASTER_PORT", std::to_string(port)},
                                                                                          {"RINGSIDE_CONNECT_TIMEOUT", "2"}}));
  for (auto& rank : ranks) expect_end(*rank, fmt::format("rank 1 of 3 never came to 127.0.0.1:{} within 2 s", port), 8);
  CHECK(sockets_on(port) == 0);
}

TEST_CASE("ranks that share memory leave nothing in /dev/shm whenever they are killed") {
  const auto before = names_in_shared_memory();
  for (int i = 0; i < 8; ++i) {  // the earliest while the ranks still meet, the latest in an all-reduce
    Job job("shm", 3, {{"RINGSIDE_CONNECT_TIMEOUT", "2"}});
    std::this_thread::sleep_for(std::chrono::milliseconds(4 * i));
    job.rank(i % 3).send(SIGKILL);
    for (int survivor = 0; survivor < 3; ++survivor) {
      if (survivor == i % 3) continue;
      const Outcome outcome = job.rank(survivor).wait(Seconds(20));
      CAPTURE(outcome.err);
      CHECK(!outcome.timed_out);
      CHECK(outcome.exit_code == 1);
    }
    CHECK(names_in_shared_memory() == before);
  }
}

TEST_CASE("too little shared memory is an error that says how much is needed, on every rank") {
  if (run_program({"unshare", "--mount", "--map-root-user", "true"}).exit_code != 0) {
    MESSAGE("not tested: this machine does not let a test have a /dev/shm of its own (unshare --mount --map-root-user)");
    return;
  }
  const auto port = tests::free_port();
  const auto script = fmt::format(
      "mount -t tmpfs -o size=1m tmpfs /dev/shm; export WORLD_SIZE=3 MASTER_PORT={}; for r in 0 1 2; do RANK=$r {} 1 shm & done; "
      "wait",
      port, worker);
  const Outcome outcome = run_program({"unshare", "--mount", "--map-root-user", "sh", "-c", script});
  CAPTURE(outcome.err);
  const std::string sentence =
      "MiB of shared memory for messages from 2 ranks, but /dev/shm has 1.0 MiB left of 1.0 MiB: enlarge it";
  std::size_t told = 0;
  for (const auto& line : sorted_lines(outcome.err)) told += contains(line, sentence);
  CHECK(told == 3);
}

TEST_CASE("ranks in different containers are told that they cannot share memory") {
  const std::vector<std::string> apart = {"unshare", "--pid", "--fork", "--kill-child", "--map-root-user"};
  auto command = apart;
  command.emplace_back("true");
  if (run_program(command).exit_code != 0) {
    MESSAGE("not tested: this machine does not let a test have process numbers of its own (unshare --pid --map-root-user)");
    return;
  }
  const auto port = tests::free_port();
  const auto variables = [&](const char* rank) {
    return Variables{{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", std::to_string(port)}};
  };
  command = apart;
  for (const auto& argument : {worker, std::string("1"), std::string("shm")}) command.push_back(argument);
  Program zero({worker, "1", "shm"}, variables("0")), one(command, variables("1"));
  for (Program* rank : {&zero, &one}) expect_end(*rank, "rank 1 runs in another container (process-ID namespace) than rank 0", 10);
}
