// The watchdog is a transport in front of a group's transport. It looks after the calls that run
// over it, and turns a hang or a failure into a sentence.
//
// It passes every message on and notes where the call stands. While nothing arrives, it tells the
// other ranks twice a second where this rank stands, and compares what they tell: two ranks in
// different calls would wait for ever. It warns after options.warn_after and fails after
// options.timeout; both sentences name the ranks that do not answer and what the others wait for.
// While a debugger holds a rank of this host, nobody fails: a rank that stands at a breakpoint is
// waited for.
//
//     watchdog.begin(sequence, call);          throws what ended an earlier call
//     try {
//       executor.run(task);                    over the watchdog
//       watchdog.end();
//     } catch (...) {
//       watchdog.give_up();                    tells every other rank the cause, and throws it
//     }
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "collectives/diagnostics/control_channel.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/diagnostics/interruption.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/execution/traffic.hpp"
#include "collectives/rank_names.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class Watchdog final : public Transport {
 public:
  Watchdog(Transport& inner, ControlChannel& control, const ExecutorOptions& options);

  // A call begins. Throws the first failure, if there was one.
  void begin(std::uint64_t sequence, const Call& call);
  void set_steps(std::size_t steps) { record_->steps = static_cast<std::uint32_t>(steps); }
  // Hears of failures although nothing is late: at most once in a while, since it costs system
  // calls.
  void listen_sometimes();
  void end() { recorder_.end(FlightEntry::done); }

  // Called in the handler of any exception that ends the call: tells every other rank the cause,
  // then throws it as an Error with all that is known about it. Throws RankFailure when a rank is
  // gone or nothing arrived for the timeout, and Error when the ranks disagree about the call.
  [[noreturn]] void give_up();

  // From another thread: the wait that is under way, or the next one, throws `cause`.
  void interrupt(const RankFailure& cause) noexcept { interruption_.set(cause); }

  // Writes the flight record and tells every other rank the cause, or the first failure if there
  // was one. Ends what the transport does.
  void abort(const RankFailure& cause) noexcept;

  // How sentences name this group's ranks. No call may be under way.
  void set_names(const RankNames& names) {
    control_.set_names(names);
    recorder_.set_mesh(names.mesh());
  }

  const Traffic& traffic() const { return traffic_; }  // since it was made

  std::string_view name() const override { return inner_.name(); }
  int window() const override { return inner_.window(); }
  std::size_t slice_bytes() const override { return inner_.slice_bytes(); }
  std::size_t announced_bytes() const override { return inner_.announced_bytes(); }
  void post_send(int peer, const MessageHeader& header,
                 std::span<const std::byte> payload) override;
  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override;

  // Throws Error when it learns that the ranks make different calls, and RankFailure when a rank is
  // gone or nothing has completed for options.timeout.
  std::optional<Completion> wait(const Deadline& deadline) override;
  void release() override { inner_.release(); }
  void cancel() noexcept override { inner_.cancel(); }

 private:
  // A message that is under way.
  struct Posted {
    int peer = -1;  // -1: none
    std::uint32_t step = 0;
  };
  struct Others {
    std::vector<int> silent;  // ranks that have told nothing recently
    std::string silence;      // "rank 2 does not answer: stopped, ..."; empty if all answer
    std::string waiting;      // "rank 3 waits for rank 2 in step 1 of call #7; ..."
  };
  std::uint32_t step_of(const MessageHeader& header, int peer) const;
  void note_sent(int peer, const MessageHeader& header);
  void note_completion(const Completion& completion);
  void begin_wait();
  void look();
  void exchange_positions();
  void compare_histories(const std::vector<Position>& positions) const;
  Position position() const;
  Others others(const std::vector<Position>& positions) const;
  int furthest_behind(const std::vector<Position>& positions) const;
  std::string where() const;
  std::string name_of_rank(int r) const { return control_.names()(r); }
  void warn_of_wait(double seconds);
  void time_out();
  [[noreturn]] void rethrow_first_cause();
  [[noreturn]] void fail_here(const char* reason);

  Transport& inner_;
  ControlChannel& control_;
  const ExecutorOptions options_;
  FlightRecorder recorder_;
  FlightEntry* record_ = nullptr;  // of the call that is under way
  Traffic traffic_;
  std::deque<Posted> sends_;
  Posted receive_, awaited_;
  Clock::time_point wait_start_, looked_;
  Clock::time_point listened_;  // when listen_sometimes() last did
  Clock::time_point told_;      // when this rank last told its position
  bool warned_ = false;
  FirstFailure failure_;
  Interruption<RankFailure> interruption_;
};

}  // namespace ringside::collectives
