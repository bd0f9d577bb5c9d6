// The watchdog waits for the transport on behalf of an executor, and turns a hang or a failure into
// a sentence.
//
// While nothing arrives, the watchdog tells the other ranks twice a second where this rank stands,
// and compares what they tell: two ranks in different calls would wait for ever. It warns after
// options.warn_after and fails after options.timeout; both sentences name the ranks that do not
// answer and what the others wait for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/execution/executor.hpp"
#include "collectives/execution/executor_options.hpp"

namespace ringside::collectives {

class RankFailure;
struct Position;

class Watchdog {
 public:
  Watchdog(Transport& transport, ControlChannel& control, const ExecutorOptions& options);

  // A call begins. `task` must stay where it is until end() or give_up().
  void begin(const Task& task);

  // Blocks until a send or the receive is complete. Throws Error when it learns that the ranks make
  // different calls, and RankFailure when a rank is gone or nothing completes for options.timeout.
  Completion wait(const Progress& progress);

  void end();

  // Called in the handler of any exception that ends the call: tells every other rank the cause,
  // then throws it as an Error with all that is known about it.
  [[noreturn]] void give_up();

  // Writes the flight record and tells every other rank the cause. Ends what the transport does.
  void abort(const RankFailure& cause) noexcept;

 private:
  struct Others {
    std::vector<int> silent;  // ranks that have told nothing recently
    std::string silence;      // "rank 2 does not answer: stopped, ..."; empty if all answer
    std::string waiting;      // "rank 3 waits for rank 2 in step 1 of call #7; ..."
  };
  std::optional<Completion> wait_for_transport(const Deadline& deadline);
  void exchange_positions();
  void compare_histories(const std::vector<Position>& positions) const;
  Position position() const;
  Others others(const std::vector<Position>& positions) const;
  std::string where() const;
  void warn_of_wait(double seconds);
  [[noreturn]] void time_out();
  [[noreturn]] void rethrow_first_cause();
  [[noreturn]] void fail_here(const char* reason);

  Transport& transport_;
  ControlChannel& control_;
  const ExecutorOptions options_;
  FlightRecorder recorder_;
  const Task* task_ = nullptr;
  Progress progress_;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace ringside::collectives
