// An executor carries out one rank's schedule over a transport.
//
// There are two, with the same results to the last bit. The simple one (simple_executor.hpp) takes
// one step after the other: read it first, and step through it first. The pipelined one
// (pipelined_executor.hpp) overlaps the steps: it is the default. RINGSIDE_EXECUTOR=simple selects
// the other, on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/schedule.hpp"
#include "collectives/call.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class ControlChannel;
class FlightRecorder;
class Watchdog;

void warn_on_stderr(const std::string& sentence);

struct ExecutorOptions {
  // The most payload bytes in one message, the same on every rank. 0: what suits the transport.
  std::size_t slice_bytes = 0;
  int slices_per_segment = 4;
  std::string group = {};  // the name of a sub-group; empty: all ranks of the job
  Seconds timeout{120};    // how long a rank may wait without any progress
  Seconds warn_after{10};  // how long a rank waits before it warns; 0: it never warns
  std::function<void(const std::string& sentence)> warn = warn_on_stderr;
};

// Where the data of a call is.
struct Buffers {
  // This rank's contribution: the chunks of `given`, one after the other. An executor writes to it
  // only where the output is the same memory.
  const std::byte* input = nullptr;
  ChunkRange given;
  // The result: the chunks of `kept`, one after the other. It may share memory with the input; a
  // chunk that both have then lies at the same address in both.
  std::byte* output = nullptr;
  ChunkRange kept;
};

// One rank's part of one call.
struct Task {
  const Schedule& schedule;  // must outlive the executor, unchanged
  const Call& call;
  std::uint64_t sequence;  // the number of the call
  Chunks chunks;           // how the schedule's chunks divide call.count elements
  Buffers buffers;
};

class Executor {
 public:
  Executor(Transport& transport, ControlChannel& control, ExecutorOptions options);
  virtual ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns when the result is in the output and the caller may change the input again. Throws
  // Error when the ranks disagree about the call, and RankFailure when a rank is gone or nothing
  // arrives for options.timeout. Before run() throws, it tells every other rank the cause.
  void run(const Task& task);

  const ExecutorOptions& options() const { return options_; }

 protected:
  // The header of a message of this task.
  MessageHeader header(const Task& task, int step, int slice, std::size_t bytes) const;

  Transport& transport_;
  ControlChannel& control_;
  ExecutorOptions options_;

 private:
  // Moves the data. Calls watchdog.wait() wherever it has to wait for the transport.
  virtual void move_data(const Task& task, Watchdog& watchdog) = 0;

  std::unique_ptr<FlightRecorder> recorder_;
};

}  // namespace ringside::collectives
