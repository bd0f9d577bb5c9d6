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

// `n` modulo `size`, never negative: wrap(-1, 4) is 3, the left neighbour of rank 0.
constexpr int wrap(int n, int size) {
  return (n % size + size) % size;
}

// Chunks first, first+1, ..., first+count-1. A message of 0 chunks has no payload, as in a barrier.
//
// With a `modulus` the range is CIRCULAR, so that one message can take chunks that do not lie side
// by side: RUNS of `run` chunks begin at first, first+stride, first+2 stride, ... modulo the
// modulus. In memory such a range is some PIECES, ranges that are not circular:
//
//     circular(6, 4, 1, 8)       chunks 6, 7, 0, 1      pieces 6-7 and 0-1
//     circular(1, 3, 4, 9)       chunks 1, 5, 0         pieces 1, 5 and 0
//     circular(1, 4, 4, 8, 2)    chunks 1, 2, 5, 6      pieces 1, 2, 5 and 6
struct ChunkRange {
  int first = 0;
  int count = 1;
  int stride = 1;
  int modulus = 0;  // 0: not circular
  int run = 1;
  bool operator==(const ChunkRange&) const = default;

  // The chunk number `i` of the range.
  constexpr int at(int i) const {
    return modulus == 0 ? first + i : wrap(first + i / run * (stride % modulus) + i % run, modulus);
  }
  constexpr int pieces() const { return modulus == 0 ? 1 : stride == 1 ? 2 : count; }
  constexpr ChunkRange piece(int i) const {
    if (modulus == 0) return {first, count};
    if (stride != 1) return {at(i), 1};
    const int before_the_end = first + count <= modulus ? count : modulus - first;
    return i == 0 ? ChunkRange{first, before_the_end} : ChunkRange{0, count - before_the_end};
  }
};

// The circular range of `count` chunks from `first` on, which may lie outside of 0 .. modulus-1.
// Chunks that lie side by side become an ordinary range, in ascending order.
constexpr ChunkRange circular(int first, int count, int stride, int modulus, int run = 1) {
  if (stride == -1) return circular(first - count + 1, count, 1, modulus);
  const int begin = wrap(first, modulus);
  if (count <= 1 || (stride == 1 && begin + count <= modulus)) return {begin, count};
  return {begin, count, stride, modulus, run};
}

constexpr bool contains(ChunkRange range, int chunk) {
  if (range.modulus == 0) return chunk >= range.first && chunk < range.first + range.count;
  for (int i = 0; i < range.count; ++i)
    if (range.at(i) == chunk) return true;
  return false;
}

// What the receiver does: replace what it holds, or combine both with the call's reduction.
enum class Action { overwrite, add };

struct Send {
  int to;
  ChunkRange chunks;           // as the receiver names them
  std::optional<int> input{};  // send the rank's original input, from this chunk on
  std::optional<int> held{};   // send what the rank holds now, from this chunk on, not chunks.first
  bool operator==(const Send&) const = default;

  // The chunks as the sender names them.
  constexpr ChunkRange taken() const {
    ChunkRange range = chunks;
    range.first = input ? *input : held.value_or(chunks.first);
    return range;
  }
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

}  // namespace ringside::collectives
