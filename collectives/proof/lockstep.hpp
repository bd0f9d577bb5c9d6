// Lockstep: all ranks on ONE thread, one step at a time, so that a debugger sees the whole ring at
// once.
//
//     (gdb) break run_step
//     (gdb) run step all_reduce -n 4
//     (gdb) print states              all ranks, all chunks
//     (gdb) print states[1].chunks[2]
//
// No transport, no processes, no clock: the schedules alone, over numbers. `verify` runs the same
// function over contributions, which are numbers too: where rank r's chunk is the vector with a one
// at place r and zeros elsewhere, adding chunks counts how often each rank's contribution is in the
// sum:
//
//     {1, 0, 0, 1}        ranks 0 and 3, each once: "0+3"
//     {0, 2, 1, 1}        rank 0 is missing and rank 1 came twice
//
// Beside what a chunk holds stands how it was added up, as a fingerprint of the whole expression in
// which a+b and b+a are the same, but (a+b)+c and a+(b+c) are not, as in floating point: ranks with
// the same fingerprint hold the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// What one rank has in hand between two steps.
struct RankState {
  std::vector<std::vector<double>> chunks;  // its buffer, cut into chunks
  std::vector<std::uint64_t> sums;          // [chunk]: fingerprint of how it was added up
  std::vector<bool>
      heard_from;  // [r]: a message from rank r has come, or one from a rank that had heard from r
  std::vector<std::vector<double>> input;  // its buffer as it was before the first step
};

// All ranks before the first step, buffers[r] being what rank r has. A buffer is cut by
// Chunks::even. Throws Error unless all buffers have the same length.
std::vector<RankState> start_with_numbers(const std::vector<std::vector<double>>& buffers,
                                          int chunks);

// All ranks before the first step, each chunk of rank r being r's contribution: the vector with a
// one at place r. With `name_chunks` as many places follow as there are chunks, with a one for the
// chunk's own number: {0, 1, 0,  0, 0, 1} is chunk 2 of rank 1. That is for the all-to-all, where a
// chunk may end in another chunk's place.
std::vector<RankState> start_with_contributions(int size, int chunks, bool name_chunks = false);

// What is wrong with step `step` of `schedules` before a byte has moved, in words: a peer that does
// not exist, a message that nobody expects, one that is waited for in vain, chunks that do not
// agree. Empty where sends and receives fit together.
std::vector<std::string> disagreements(const std::vector<Schedule>& schedules, int step);

// Every rank takes step `step` of its schedule. schedules[r] and states[r] are rank r's. Throws
// Error with the first of the disagreements, if there is one.
void run_step(const std::vector<Schedule>& schedules, int step, std::vector<RankState>& states);

// Every rank takes all its steps.
void run_all_steps(const std::vector<Schedule>& schedules, std::vector<RankState>& states);

// The chunks of one rank put together again.
std::vector<double> buffer_of(const RankState& state);

// "chunk 3", "chunks 0 to 3", or "a message without payload"; of a send also "chunk 3 of its
// input", and "... as chunk 2".
std::string in_words(const Send& send);
std::string in_words(const ChunkRange& range);

}  // namespace ringside::collectives
