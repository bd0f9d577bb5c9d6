// The ranks of one job on this machine, from their start to the end of the last one.
//
// run() is one loop on one thread. It sleeps in poll(2) until a signal arrives, a rank has printed
// something, or a deadline has passed, and then lets each of its steps look for work.
#pragma once

#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "cli/launcher/flight_folder.hpp"
#include "cli/launcher/launcher.hpp"
#include "cli/launcher/processes/line_forwarder.hpp"
#include "cli/launcher/processes/orphan_reaper.hpp"
#include "cli/launcher/processes/output_queue.hpp"
#include "cli/launcher/processes/rank_process.hpp"
#include "cli/launcher/processes/signal_pipe.hpp"
#include "cli/launcher/rendezvous_address.hpp"
#include "collectives/bootstrap/job_members.hpp"

namespace ringside::cli {

class Job {
 public:
  explicit Job(const LaunchOptions& options);
  ~Job();  // kills the ranks that still run
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run();                                     // returns the launcher's exit code
  bool was_stopped() const { return stopped_; }  // by a signal to the launcher

 private:
  // One of a rank's output streams, on its way to the launcher's own.
  struct Stream {
    FileDescriptor pipe;
    LineForwarder lines;
    OutputQueue* to;
  };

  struct Rank {
    int number = 0;
    int local_rank = 0;
    pid_t pid = -1;
    bool running = true;
    std::array<Stream, 2> streams;
    bool bare = false;           // it writes to the launcher's own stdout and stderr
    siginfo_t end = {};          // how it ended, once it does not run
    std::int64_t failed_at = 0;  // by its flight record, in ns since 1970; 0: it has left none
    int blamed = -1;             // by that record: the rank that the failure is about
    std::optional<Deadline> stopped = {};  // by SIGSTOP: a job with members goes on without it then
  };

  Rank start(int local_rank);
  bool any_running() const;
  bool done() const { return !any_running() && out_.empty() && err_.empty(); }
  void wait_for_events();

  void handle_signals();
  void stop(int signal);
  void send_to_all(int signal);
  void escalate();

  static bool lost_its_reader(const Rank& rank, const siginfo_t& end);
  void check_for_lost_reader();
  void wait_for_lost_reader();
  void report_full_output();
  void forward_output();
  void forward(Stream& stream);

  void reap_ended_ranks();
  void reap(Rank& rank);
  void read_failures();
  const Rank* find_suspect() const;
  bool knows_culprit(const Rank& suspect) const;
  void serve_members();
  void end_stopped_ranks();
  bool go_on_without(Rank& rank);
  void end_for(const std::string& sentence, int exit_code);
  void report_failure(const Rank& culprit);
  const Rank& cause_of(const Rank& suspect) const;
  std::string name_of(const Rank& rank) const;
  void report_flight_records();

  void print(const std::string& sentence);
  const char* line_start(int fd) const;

  const LaunchOptions& options_;
  collectives::JobMembers* const members_;  // those of the options, or nullptr
  RendezvousAddress rendezvous_;
  FlightFolder flights_;
  OrphanReaper reaper_;  // forks before there are signal handlers that it would inherit
  SignalPipe signals_;
  OutputQueue out_{STDOUT_FILENO};
  OutputQueue err_{STDERR_FILENO};
  std::vector<Rank> ranks_;
  std::vector<const Rank*> failed_ranks_;  // in the order in which the launcher noticed it

  int exit_code_ = 0;
  bool ending_ = false;       // a rank has failed, or a signal has stopped the job
  bool stopped_ = false;      // a signal has stopped the job
  bool failed_ = false;       // a rank has failed, before any signal, and has been named
  bool lost_reader_ = false;  // nobody reads stdout any more, and a rank has noticed
  bool waited_for_lost_reader_ = false;
  bool reported_records_ = false;

  // When the ranks must have ended, and the signal that they get otherwise (0: give up on them).
  std::optional<Deadline> deadline_;
  int next_signal_ = SIGTERM;
};

}  // namespace ringside::cli
