// Lockstep: all ranks on one thread, one step at a time, so that a debugger shows the whole ring.
//
//     (gdb) break run_step
//     (gdb) run step all_reduce -n 4
//     (gdb) print states              all ranks, all chunks
//     (gdb) print states[1].chunks[2]
//
// There is no transport and no clock: only the schedules, over contributions. A contribution is a
// vector with a one at the rank's index, so adding chunks counts how often the sum holds each rank:
//
//     {1, 0, 0, 1}        ranks 0 and 3, each once: "0+3"
//     {0, 2, 1, 1}        rank 0 is missing, and rank 1 is in it twice
//
// Each chunk also has the order of its additions, "((0+1)+2)". a+b and b+a have the same bits and
// are written alike: first what has more additions, or else the lower first rank. (a+b)+c and
// a+(b+c) differ. Chunks with equal expressions have equal bits in floating point.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// What one rank holds between two steps.
struct RankState {
  std::vector<std::vector<double>> chunks;
  std::vector<std::string> sums;           // [chunk] the order of its additions
  std::vector<bool> heard_from;            // [r] heard from rank r, directly or through others
  std::vector<std::vector<double>> input;  // the chunks before the first step
};

// All ranks before the first step, where each chunk of rank r is r's contribution. With
// `name_chunks` the chunk's own number follows in the same form, for collectives that move a chunk
// to another index: on 3 ranks {0, 1, 0,  0, 0, 1} is chunk 2 of rank 1.
std::vector<RankState> start_with_contributions(int size, int chunks, bool name_chunks = false);

// Every rank takes step `step`. schedules[r] and states[r] are rank r's. Throws Error if a send and
// its receive do not match (disagreements.hpp).
void run_step(const std::vector<Schedule>& schedules, int step, std::vector<RankState>& states);

// Every rank takes all its steps.
void run_all_steps(const std::vector<Schedule>& schedules, std::vector<RankState>& states);

}  // namespace ringside::collectives
