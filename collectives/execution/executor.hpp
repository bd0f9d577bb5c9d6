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
  Chunks input_chunks;     // how they divide the input: the same, but in an all_to_all of unequal
                           // blocks
  Buffers buffers;

  // What a message carries, as this rank divides its buffers.
  struct Extent {
    const Chunks& chunks;
    ChunkRange range;
    std::size_t elements() const { return chunks.size(range); }
  };
  Extent extent(const Send& send) const {
    return {send.input ? input_chunks : chunks, send.taken()};
  }
  Extent extent(const Receive& receive) const { return {chunks, receive.chunks}; }
};

class Executor {
 public:
  explicit Executor(Transport& transport) : transport_(transport) {}
  virtual ~Executor() = default;

  // Returns when the result is in the output and the caller may change the input again. It waits
  // for as long as its transport does: that of a group is a Watchdog (watchdog.hpp).
  virtual void run(const Task& task) = 0;

 protected:
  // Of a message that carries so many elements, not sliced.
  MessageHeader header(const Task& task, int step, std::size_t elements) const;

  Transport& transport_;
};

std::unique_ptr<Executor> make_simple_executor(Transport&);
std::unique_ptr<Executor> make_pipelined_executor(Transport&, const ExecutorOptions&);
std::unique_ptr<Executor> make_executor(Transport&, const ExecutorOptions&);

}  // namespace ringside::collectives
