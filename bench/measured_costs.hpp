// The costs of messages and sums on this machine (cost_model.hpp), computed from a few measured
// calls.
//
// The calls are all_gathers of few and of many bytes through the normal executor and transport,
// with two algorithms: in the ring each message waits for the previous one; in the direct exchange
// no message waits. Each runs with 2 ranks and with more ranks than cores. Each cost is computed
// from the call whose time it dominates:
//
//     ranks, bytes, algorithm   time                               why
//     2, few                    alpha                              one message each way
//     p, few, direct            p (p-1) 2 overhead / cores         the cores process messages
//     p, few, ring              (p-1) (alpha + turn (p/cores-1))   each message is waited for
//     2, many                   alpha + beta b                     b bytes each way
//     p, many, ring             p, few, ring                       the cores also copy bytes
//                                 + 2 copy * all bytes / cores
//
// Calls with many bytes are measured with three buffer sizes, for different levels of the cache
// (MachineCosts).
#pragma once

#include <array>

#include "collectives/selection/cost_model.hpp"

namespace ringside::cli {

// Seconds of the calls above. "many" has an element for each of MachineCosts::lengths.
struct CalibrationTimes {
  int ranks = 0;
  double pair_few = 0;    // 2 ranks
  double ring_few = 0;    // `ranks` ranks
  double direct_few = 0;  // likewise
  std::array<double, 3> pair_many{}, ring_many{};
};

// Computes alpha, turn, overhead, beta and copy. None is negative, even if the times contradict
// each other, as they may on a busy machine.
collectives::MachineCosts solve_costs(const CalibrationTimes& times, int cores);

// Seconds per byte to add one buffer to another, for each of MachineCosts::lengths.
std::array<double, 3> measure_adding();

}  // namespace ringside::cli
