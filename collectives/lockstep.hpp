// Lockstep: all ranks on ONE thread, one step at a time, so that a debugger sees the whole ring at once.
//
//     (gdb) break run_step
//     (gdb) run step all_reduce -n 4
//     (gdb) print states              all ranks, all chunks
//     (gdb) print states[1].chunks[2]
//
// No transport, no processes, no clock: the schedules alone, over numbers. `verify` runs the same function over contributions,
// which are numbers too: where rank r's chunk is the vector with a one at place r and zeros elsewhere, adding chunks counts how
// often each rank's contribution is in the sum:
//
//     {1, 0, 0, 1}        ranks 0 and 3, each once: "0+3"
//     {0, 2, 1, 1}        rank 0 is missing and rank 1 came twice
#pragma once

#include <string>
#include <vector>

#include "collectives/schedule.hpp"

namespace ringside::collectives {

// What one rank has in hand between two steps.
struct RankState {
  std::vector<std::vector<double>> chunks;  // its buffer, cut into chunks
  std::vector<bool> heard_from;             // [r]: a message from rank r has come, or one from a rank that had heard from r
};

// All ranks before the first step, buffers[r] being what rank r has. A buffer is cut by Chunks::even. Throws Error unless all
// buffers have the same length.
std::vector<RankState> start_with_numbers(const std::vector<std::vector<double>>& buffers, int chunks);

// All ranks before the first step, each chunk of rank r being r's contribution: the vector with a one at place r.
std::vector<RankState> start_with_contributions(int size, int chunks);

// What is wrong with step `step` of `schedules` before a byte has moved, in words: a peer that does not exist, a message that
// nobody expects, one that is waited for in vain, chunks that do not agree. Empty where sends and receives fit together.
std::vector<std::string> disagreements(const std::vector<Schedule>& schedules, int step);

// Every rank takes step `step` of its schedule. schedules[r] and states[r] are rank r's. Throws Error with the first of the
// disagreements, if there is one.
void run_step(const std::vector<Schedule>& schedules, int step, std::vector<RankState>& states);

// Every rank takes all its steps.
void run_all_steps(const std::vector<Schedule>& schedules, std::vector<RankState>& states);

// The chunks of one rank put together again.
std::vector<double> buffer_of(const RankState& state);

// "chunk 3", "chunks 0 to 3", or "a message without payload".
std::string in_words(const ChunkRange& range);

}  // namespace ringside::collectives
