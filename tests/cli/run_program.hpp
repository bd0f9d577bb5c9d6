// Runs `ringside` and other programs in tests as a user does: with arguments, environment, signals
// and a time limit. Reports the output, the end of the program, and the processes that it left.
//
//   const auto outcome = run_program({ringside_binary, "hello", "-n", "4"});
//   CHECK(outcome.exit_code == 0);
//   CHECK(contains(outcome.err, "rank 2 was killed"));
//   CHECK(outcome.survivors == "");
//
// Link ringside_run_program.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "base/clock.hpp"
#include "base/read_file.hpp"
#include "cli/launcher/processes/pipe.hpp"
#include "tests/text.hpp"

namespace ringside::testing {

using ringside::read_file;
using tests::contains;

extern const std::string ringside_binary;  // the path of the program under test

using Variables = std::map<std::string, std::string>;

// What an outer launcher tells a rank of a job on this machine.
inline Variables rank_variables(int rank, int size, int port, const std::string& key = "a job") {
  return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},   {"MASTER_PORT", std::to_string(port)},
          {"RINGSIDE_JOB_KEY", key},      {"RINGSIDE_CONNECT_TIMEOUT", "20"}};
}

struct Outcome {
  std::string out;
  std::string err;
  int exit_code = -1;      // -1 if a signal ended it
  int signal = 0;          // the signal that ended it, or 0
  bool timed_out = false;  // it was killed because it took longer than the test allowed
  std::string survivors;   // a line for each process that it left ("" for none), now killed
  double seconds = 0;
};

// A program that runs while the test continues. It reads from /dev/null, has a process group of its
// own, and inherits no variable of an outer job (such as RANK), except those in `variables`. The
// class has no thread: it reads the output while the test calls one of its functions.
class Program {
 public:
  explicit Program(std::vector<std::string> command, const Variables& variables = {});
  ~Program();  // kills the remaining processes
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const;

  // Waits until stdout or stderr contains `text`. Returns false if the program ends or the limit
  // passes first.
  bool wait_for(std::string_view text, Seconds limit = Seconds(30));

  // Waits for the end. The processes that exist a moment later are its survivors.
  Outcome wait(Seconds limit = Seconds(60));

  // The running processes of this program: itself and all processes that it has started, even if
  // their parents have ended. A mark in the environment identifies them, so a process that clears
  // its environment is missing, and for a moment one that is in the middle of exec().
  std::vector<pid_t> processes() const;

  // The processes that run as rank `rank` of a job, by RANK in their environment.
  std::vector<pid_t> processes_of_rank(int rank) const;

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  std::vector<pid_t> processes_with(const std::vector<std::string>& entries) const;
  void take_output(int milliseconds);
  bool ended();
  std::string survivors() const;

  std::string mark_;
  pid_t pid_ = -1;
  cli::FileDescriptor out_pipe_;
  cli::FileDescriptor err_pipe_;
  std::string out_;
  std::string err_;
  bool ended_ = false;
  int status_ = 0;
  Clock::time_point start_ = Clock::now();
};

// Runs a program from start to end.
Outcome run_program(std::vector<std::string> command, const Variables& variables = {},
                    Seconds limit = Seconds(60));

// Waits until the condition holds. Returns false if it does not within 20 seconds.
bool eventually(const std::function<bool()>& condition);

// The lines of a text, sorted, because the output of several ranks comes in any order.
std::vector<std::string> sorted_lines(std::string_view text);

}  // namespace ringside::testing
