// Failures of ranks that are processes: killed, stopped, or never started. The survivors name the one to blame and end by themselves.
#include <csignal>
#include <filesystem>
#include <fstream>
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
  Job(int size, const Variables& more = {}, const std::string& count = "25000000") : port_(tests::free_port()) {
    for (int rank = 0; rank < size; ++rank) {
      Variables variables = {{"RANK", std::to_string(rank)},
                             {"WORLD_SIZE", std::to_string(size)},
                             {"LOCAL_RANK", std::to_string(rank)},
                             {"LOCAL_WORLD_SIZE", std::to_string(size)},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", std::to_string(port_)},
                             {"RINGSIDE_JOB_KEY", "failures"}};
      for (const auto& [name, value] : more) variables[name] = value;
      ranks_.push_back(std::make_unique<Program>(std::vector<std::string>{worker, count}, variables));
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

}  // namespace

TEST_CASE("a rank killed in the middle of a large all-reduce is named by every survivor at once") {
  Job job(4);
  job.wait_until_ready();
  job.rank(2).send(SIGKILL);
  for (const int survivor : {0, 1, 3}) expect_end(job.rank(survivor), "rank 2 is gone: its connection closed without a goodbye", 5);
  CHECK(job.rank(2).wait().signal == SIGKILL);
  CHECK(sockets_on(job.port()) == 0);
}

TEST_CASE("a killed rank 0 is named as well") {
  Job job(3);
  job.wait_until_ready();
  job.rank(0).send(SIGKILL);
  for (const int survivor : {1, 2}) expect_end(job.rank(survivor), "rank 0 is gone: its connection closed without a goodbye", 5);
}

TEST_CASE("a stopped rank is named at the deadline and hears of it when it goes on") {
  Job job(4, {{"RINGSIDE_TIMEOUT", "2"}});
  job.wait_until_ready();
  job.rank(1).send(SIGSTOP);
  for (const int survivor : {0, 2, 3}) expect_end(job.rank(survivor), "rank 1 does not answer: stopped, stuck, or busy outside of the collectives", 8);
  job.rank(1).send(SIGCONT);
  expect_end(job.rank(1), "rank 1 does not answer", 5);
}

TEST_CASE("a stopped rank that goes on in time does no harm") {
  Job job(3, {{"RINGSIDE_TIMEOUT", "20"}}, "1000");
  job.wait_until_ready();
  job.rank(1).send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  job.rank(1).send(SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  job.rank(2).send(SIGKILL);
  for (const int survivor : {0, 1}) expect_end(job.rank(survivor), "rank 2 is gone", 5);
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
