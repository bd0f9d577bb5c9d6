// An algorithm is data: a schedule lists the steps that each rank takes, and does none of them.
//
// Reading order: this file, algorithms/ring/ring.hpp, proof/verify.hpp with proof/lockstep.hpp,
// execution/simple_executor.cpp, transport/threads.cpp, transport/tcp.cpp, process_group.hpp.
//
// A buffer is divided into CHUNKS, numbered from 0. A schedule names chunks only, so it serves any
// number of elements of any type: chunks.hpp says which elements are in a chunk. The schedules of
// all ranks have the same number of steps, and what one rank sends in step s another receives in
// step s:
//
//     step s of rank 1                    step s of rank 2
//     send    {to 2,   chunk 0} ───────▶  receive {from 1, chunk 0, add}
//
// A rank sends what it held BEFORE the step, even where it receives into the same chunk. A rank may
// send to itself: then both halves of the step name the rank itself.
#pragma once

#include <optional>
#include <vector>

namespace ringside::collectives {

// Chunks first, first+1, ..., first+count-1. A message of 0 chunks has no payload, as in a barrier.
struct ChunkRange {
  int first = 0;
  int count = 1;
  bool operator==(const ChunkRange&) const = default;
};

constexpr bool contains(ChunkRange range, int chunk) {
  return chunk >= range.first && chunk < range.first + range.count;
}

// What the receiver does: replace what it holds, or combine both with the call's reduction.
enum class Action { overwrite, add };

struct Send {
  int to;
  ChunkRange chunks;           // as the receiver names them
  std::optional<int> input{};  // send the rank's original input, from this chunk on; none: send
                               // what the rank holds now
  bool operator==(const Send&) const = default;
};

struct Receive {
  int from;
  ChunkRange chunks;
  Action action;
  bool operator==(const Receive&) const = default;
};

// One rank's part in one step: at most one message out and one in.
struct Step {
  std::optional<Send> send;
  std::optional<Receive> receive;
  bool operator==(const Step&) const = default;
};

// One rank's part in one collective.
struct Schedule {
  int chunks = 1;  // how many chunks the buffer has, the same on every rank
  std::vector<Step> steps;
};

// `n` modulo `size`, never negative: wrap(-1, 4) is 3, the left neighbour of rank 0.
constexpr int wrap(int n, int size) {
  return (n % size + size) % size;
}

}  // namespace ringside::collectives
