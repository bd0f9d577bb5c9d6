// Verify: proves that a schedule computes a whole step, and that it cannot hang.
//
// It checks, each only if those before are in order:
//   1. every stage has a rank, and every action names a stage of its rank and a micro-batch that
//      exists;
//   2. each stage runs each micro-batch forward once and backward once, in one action (B) or in two
//      parts (I and W), and nothing occurs twice;
//   3. F comes before B or I, I before W, and a stage after the stage on the same rank whose output
//      or gradient it needs;
//   4. each message is received before it is needed and sent after it is made, it has two ends, and
//      both ends of a lane agree on the order (lower.hpp);
//   5. each stage's gradients are reduced once, after the last B or W;
//   6. no ranks wait for each other in a circle, with buffered sends, and where nothing is buffered
//      (deadlock.hpp).
//
// An empty result means proved. Otherwise each entry is a sentence:
//
//     rank 1 runs 1W0 before 1I0, which leaves behind what W needs
//     deadlock where sends are buffered: rank 0 waits in 0B0 for 1SEND_B0 of rank 1; rank 1 waits
//     in 1F1 for 0SEND_F1 of rank 0
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// Computations alone are proved as lower() completes them. Time and memory are linear in the number
// of actions.
std::vector<std::string> verify(const Schedule& schedule);

// The most activations that each rank holds at once, counted in pairs of a stage and a micro-batch.
// Forward keeps one. It is freed by B, or by W: I needs it too, but W comes later. (Qi et al. let I
// free a part; here W frees all of it.)
std::vector<int> most_in_flight(const Schedule& schedule);

}  // namespace ringside::pipeline_parallel
