// An executor carries out one rank's schedule over a transport.
//
// There are two, with the same results to the last bit. The simple one takes one step after the
// other: read it first, and step through it first. The pipelined one overlaps the steps: it is the
// default. RINGSIDE_EXECUTOR=simple selects the simple one; it must be the same on every rank.
#pragma once

#include <memory>

#include "collectives/algorithms/chunks.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class ControlChannel;
class RankFailure;
struct ExecutorOptions;

// Where the data of a call is. Input and output may share memory; a chunk that both have then lies
// at the same address in both. Otherwise nothing writes to the input.
struct Buffers {
  const std::byte* input = nullptr;  // the chunks of `given`, one after the other
  ChunkRange given;
  std::byte* output = nullptr;  // the chunks of `kept`, one after the other
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

// What an executor waits for: a message from `peer`, or that `peer` has taken one.
struct Progress {
  int step = 0, peer = -1;
  bool receiving = false;
};

class Executor {
 public:
  Executor(Transport& transport, ControlChannel& control, const ExecutorOptions& options);
  virtual ~Executor();

  // Returns when the result is in the output and the caller may change the input again. Throws
  // Error when the ranks disagree about the call, and RankFailure when a rank is gone or nothing
  // arrives for the timeout. Before run() throws, it tells every other rank the cause.
  void run(const Task& task);

  // Gives up outside of a call: keeps a record, and tells every other rank the cause.
  void abort(const RankFailure& cause) noexcept;

 protected:
  // Waits until a send or the receive is complete. Throws as run() does.
  Completion wait(const Progress& progress);

  // Of a message that carries all of `chunks`, not sliced.
  MessageHeader header(const Task& task, int step, ChunkRange chunks) const;

  Transport& transport_;

 private:
  virtual void move_data(const Task& task) = 0;

  std::unique_ptr<class Watchdog> watchdog_;  // turns a hang or a failure into a sentence
};

// Posts a send, and adds it to the trace of this thread, if there is one.
void send_message(Transport&, int peer, const MessageHeader&, std::span<const std::byte> payload);

std::unique_ptr<Executor> make_simple_executor(Transport& transport, ControlChannel& control,
                                               const ExecutorOptions& options);

}  // namespace ringside::collectives
