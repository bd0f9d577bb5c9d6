// The wait monitor of one rank in a group: it turns a hang or a failure into a sentence.
//
// While a rank waits and nothing arrives, it tells the other ranks twice a second where it stands,
// and compares what they tell: two ranks in different calls would wait for ever. It warns after
// options.warn_after and fails after options.timeout; both sentences name the ranks that do not
// answer and what the others wait for. It follows who waits for whom into other groups
// (diagnostics/wait_graph.hpp). While a debugger holds a rank of this host, nobody fails: a rank
// that stands at a breakpoint is waited for.
//
//     monitor.begin(sequence, call);          throws what ended an earlier call
//     try {
//       monitor.begin_wait(peer, step);
//       while (nothing has arrived) monitor.look();     every ControlChannel::poll_interval
//       monitor.end();
//     } catch (...) {
//       monitor.give_up();                    tells every other rank the cause, and throws it
//     }
//
// The watchdog uses it for the calls of a group (watchdog.hpp), messages for theirs (messages.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/diagnostics/control_channel.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

class WaitMonitor {
 public:
  // How the calls that it watches are numbered: calls by all ranks alike, so that two ranks under
  // one number must make the same; messages by each rank on its own.
  enum class Numbers { of_the_group, of_this_rank };

  WaitMonitor(ControlChannel& control, const ExecutorOptions& options, Numbers numbers);

  // A call begins. Throws the first failure, if there was one.
  void begin(std::uint64_t sequence, const Call& call, std::uint32_t steps = 0);
  FlightEntry& record() { return *record_; }  // of the call that began last
  void end() { recorder_.end(FlightEntry::done); }

  // The call waits for a message of `peer`, or until `peer` takes one.
  void begin_wait(int peer, std::uint32_t step) {
    awaited_ = peer;
    record_->step = step;
    warned_ = may_be_circle_ = false;
  }
  // Nothing had arrived at `since`, when the first look() is due.
  void nothing_came(Clock::time_point since) { wait_start_ = told_ = looked_ = since; }
  // Something has arrived, but not all: the timeout is for progress.
  void note_progress() { wait_start_ = Clock::now(); }
  // Throws Error when it learns that the ranks make different calls, and RankFailure when a rank is
  // gone or nothing has arrived for options.timeout.
  void look();
  void end_wait();

  // Between calls, while this rank waits for others to connect with it: hears of failures, and
  // tells the others that it waits.
  void look_while_connecting();

  // Hears of failures although nothing is late: at most once in a while, since it costs system
  // calls.
  void listen_sometimes();

  // Called in the handler of any exception that ends the call: tells every other rank the cause,
  // then throws it as an Error with all that is known about it. Throws RankFailure when a rank is
  // gone or nothing arrived for the timeout, and Error when the ranks disagree about the call.
  [[noreturn]] void give_up();

  // From another thread: the next look() or throw_if_interrupted() throws `cause`.
  void interrupt(const std::string& cause) noexcept;
  void throw_if_interrupted() const { interruption_.throw_if_any(); }

  // Writes the flight record and tells every other rank the cause, or the first failure if there
  // was one. `cause` alone blames this rank.
  void abort(const RankFailure& cause) noexcept;
  void abort(const std::string& cause) noexcept { abort(RankFailure(rank_in_job(), cause)); }

  // How sentences name this group's ranks. No call may be under way.
  void set_names(const RankNames& names) {
    control_.set_names(names);
    recorder_.set_mesh(names.mesh());
  }

 private:
  struct Others {
    std::vector<int> silent;  // ranks that have told nothing recently
    std::string silence;      // "rank 2 does not answer: stopped, ..."; empty if all answer
    std::string waiting;      // "rank 3 waits for rank 2 in step 0 of call #7; ..."
  };
  int rank() const { return control_.rank(); }
  int rank_in_job() const { return control_.names().in_job(rank()); }
  int size() const { return control_.size(); }
  void exchange_positions();
  void compare_histories(const std::vector<Position>& positions) const;
  Position position() const;
  Others others(const std::vector<Position>& positions) const;
  struct Wait {
    int rank, peer;  // who waits, for whom
  };
  Wait wait_at_fault(const std::vector<Position>& positions) const;
  std::vector<std::string> waits_elsewhere(const std::vector<Position>& positions) const;
  void follow_beyond(int peer, const std::vector<Position>& positions,
                     const std::string& what_is_known);
  std::string where() const;
  RankNames names_of_job() const { return RankNames({}, control_.names().mesh()); }
  std::string name_of_rank(int r) const { return control_.names()(r); }
  void warn_of_wait(double seconds);
  void time_out();
  [[noreturn]] void rethrow_first_cause();
  [[noreturn]] void fail_here(const char* reason);

  ControlChannel& control_;
  const ExecutorOptions options_;
  const Numbers numbers_;
  FlightRecorder recorder_;
  FlightEntry* record_ = nullptr;
  int awaited_ = -1;  // the peer
  Clock::time_point wait_start_, looked_;
  Clock::time_point listened_;  // when listen_sometimes() last did
  Clock::time_point told_;      // when this rank last told its position
  bool warned_ = false;
  bool told_position_ = false;  // in this wait
  bool may_be_circle_ = false;  // its time was over before, and ranks waited in a circle
  FirstCause<RankFailure> failure_;
  FirstCause<RankFailure> interruption_;
};

}  // namespace ringside::collectives
