// What a schedule costs, told without moving a byte: all ranks' schedules are walked, and a few
// numbers say how long each message takes.
//
// A message of b bytes, and what it keeps busy:
//
//     sender     ├ overhead + beta b ┤                               its way out is busy, then free for the next message
//     receiver              ├ overhead + beta b ┤├ gamma b ┤         its way in; then what came is added, where the step says so
//                ├──── alpha + beta b ──────────┤                    from hand to hand
//
// A rank sends and receives at the same time, one message each way; what it sends waits for what it
// must have received before, by the very rules of the executor (plan()), and long chunks travel in
// slices, so that a chain is a pipeline here as it is there. Where overhead = alpha and nothing is
// cut, this is the model in which the literature counts: alpha + beta b for a message, one port
// each way. A lesser overhead is what LogP adds: the next message need not wait until this one has
// arrived.
//
// When the last rank is done, that is the PATH: the time with a core for every rank. But ranks of
// one host share its cores, and there moving bytes is work for a core at both ends. The WORK of all
// ranks, spread over the cores, is time that passes whatever the path:
//
//     work = messages * 2 overhead + bytes * 2 copy + bytes added * gamma                  core-seconds, all ranks together
//     time = max(path, work / cores)
//
// And a message that has come must wait until it is its rank's turn on a core: with p ranks, alpha
// grows by turn * (p / cores - 1). On a laptop with more ranks than cores it is these two that
// count (docs/performance.md).
//
// Sources: Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994), pages
// 389-398 (alpha, beta); Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19 (2005), section 3 (with gamma); Chan, Heimlich, Purkayastha and
// van de Geijn, "Collective communication: theory, practice, and experience", Concurrency and
// Computation 19 (2007), section 2 (one port, both ways at once); Culler et al., "LogP", PPoPP 1993
// (overhead); Brent, "The parallel evaluation of general arithmetic expressions", Journal of the
// ACM 21 (1974) (path and work).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// What moving and adding cost, in seconds. For a network that is not here: invent them.
struct CostParameters {
  double alpha = 0;     // a message without payload, from hand to hand
  double beta = 0;      // each byte of a message
  double gamma = 0;     // each byte that is added to another
  double overhead = 0;  // what a message keeps its sender, and its receiver, busy: at most alpha
  double copy = 0;      // what each byte keeps a core busy at either end
  double turn = 0;      // what alpha is longer by for each further rank on a core
  int cores = 0;        // that all ranks share; 0: each rank has as many as it needs
  std::uint64_t slice_bytes = 0;  // a message's payload at most; 0: chunks are not cut
  bool operator==(const CostParameters&) const = default;
};

// The same for one machine, whose bytes cost the more, the less of the ranks' buffers is in cache:
// what depends on the bytes was measured with whole buffers of three lengths, and is taken in
// between, on a logarithmic scale, for those between.
struct MachineCosts {
  static constexpr std::uint64_t lengths[] = {64000, 1000000, 16000000};
  struct PerByte {
    double beta = 0, copy = 0, gamma = 0;
    bool operator==(const PerByte&) const = default;
  };
  CostParameters common;     // its beta, copy and gamma mean nothing
  PerByte per_byte[3] = {};  // at each of the lengths
  CostParameters at(std::uint64_t buffer_bytes) const;
  bool operator==(const MachineCosts&) const = default;
};

struct Sent {
  std::uint64_t messages = 0, bytes = 0;
  bool operator==(const Sent&) const = default;
};

struct Cost {
  double path = 0;     // seconds until the last rank is done, each rank having a core of its own
  double work = 0;     // core-seconds of all ranks together
  double seconds = 0;  // the estimate: see above
  std::vector<Sent> sent;  // [rank]
};

// schedules[r] is rank r's, and `chunks` how the buffer is cut, in elements of `element_bytes`.
// Throws Error where a schedule cannot come to its end because a message that it waits for is never
// sent.
Cost cost_of(const std::vector<Schedule>& schedules, const Chunks& chunks,
             std::size_t element_bytes, const CostParameters& parameters);

// The same for a buffer of `bytes`, cut as evenly as may be.
Cost cost_of(const Algorithm& algorithm, int size, std::uint64_t bytes,
             const CostParameters& parameters);

}  // namespace ringside::collectives
