// The cost of a schedule as a function of alpha and beta, found once for all values of both.
//
// cost_of() (collectives/selection/cost_model.hpp) takes the longest path through the messages. If
// adding costs nothing, each rank has a core, and a message keeps its ports busy for half of alpha,
// then a path of m messages and b bytes takes m alpha + b beta. So the cost is the largest of these
// lines, and only a few of the paths are ever the longest:
//
//     seconds                           . steep: many bytes, few messages
//        |                         .  *
//        |                    .  *
//        |  * - - - - - -  *  - - - - -   flat: many messages, few bytes
//        +---------------------------------- beta / alpha
//
// Whoever has the lines of an algorithm can say what it costs on any network, and why: in messages
// and in bytes. The page of `ringside step --html` carries them.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/schedule.hpp"
#include "collectives/selection/cost_model.hpp"

namespace ringside::cli {

// A path: `messages` one after the other, with `bytes` in all. A message that follows another out
// of the same port, without waiting for its arrival, counts as a half.
struct CostLine {
  double messages = 0, bytes = 0;
  double seconds(double alpha, double beta) const { return messages * alpha + bytes * beta; }
};

// The range of beta / alpha that the lines cover, in 1/bytes: from 1 ms and 100 GB/s to 100 ns and
// 10 MB/s.
inline constexpr double lowest_ratio = 1e-8, highest_ratio = 1;

// The parameters of these lines: gamma = 0, overhead = alpha / 2, no shared cores.
collectives::CostParameters alpha_beta_costs(double alpha, double beta, std::uint64_t slice_bytes);

// The largest of the result is cost_of(schedules, chunks, 1, alpha_beta_costs(...)).seconds, within
// a millionth; `chunks` divides bytes. Throws Error if the buffer has so many slices that cost_of()
// approximates them.
std::vector<CostLine> cost_lines(const std::vector<collectives::Schedule>& schedules,
                                 const collectives::Chunks& chunks, std::uint64_t slice_bytes);

}  // namespace ringside::cli
