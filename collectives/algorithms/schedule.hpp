// An algorithm is data: the steps that each rank takes, told without doing any of them.
//
// Reading order of this room: this file, algorithms/ring.hpp, verify.hpp, lockstep.hpp,
// executor.cpp, transport/threads.cpp, transport/tcp.cpp, process_group.hpp.
//
// A schedule speaks of CHUNKS. A buffer is cut into `chunks` pieces, numbered from 0; how many
// elements each piece has is decided elsewhere (chunks.hpp), so that one schedule serves every
// count and type. Every rank's schedule has the same number of steps, and what is sent in step s is
// received in step s:
//
//     step s of rank 1                    step s of rank 2
//     send    {to 2,   chunk 0} ───────▶  receive {from 1, chunk 0, add}
//
// Within one step a rank sends what it held BEFORE the step, also where it receives into the same
// chunk. A rank may send to itself, where both halves of a step say so: then its own input is
// added, or copied, in its turn.
#pragma once

#include <optional>
#include <vector>

namespace ringside::collectives {

// Chunks first, first+1, ..., first+count-1. A count of 0 is a message without payload: news of its
// own, as in a barrier.
struct ChunkRange {
  int first = 0;
  int count = 1;
  bool operator==(const ChunkRange&) const = default;
};

constexpr bool contains(ChunkRange range, int chunk) {
  return chunk >= range.first && chunk < range.first + range.count;
}

constexpr bool overlap(ChunkRange a, ChunkRange b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

// What the receiver does with what arrives: replace what it holds, or combine the two with the
// reduction of the call.
enum class Action { overwrite, add };

struct Send {
  int to;
  ChunkRange chunks;           // where they land: the receiver names the same
  std::optional<int> input{};  // taken from the rank's own input as it was given, from this chunk
                               // on; none: what it holds now
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
  int chunks = 1;  // pieces that the buffer is cut into, the same on every rank
  std::vector<Step> steps;
};

// `n` modulo `size`, never negative: the neighbour of rank 0 on the left is rank size-1.
constexpr int wrap(int n, int size) {
  return (n % size + size) % size;
}

}  // namespace ringside::collectives
