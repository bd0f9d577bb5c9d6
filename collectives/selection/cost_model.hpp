// The cost of a schedule, computed without moving a byte: the schedules of all ranks are walked,
// with a few parameters for how long a message takes.
//
// A message of b bytes keeps three things busy: the sender's outgoing port, the receiver's incoming
// port, and then the receiver while it adds what arrived, if the step says so:
//
//     sender     |-- overhead + beta b --|
//     receiver              |-- overhead + beta b --|-- gamma b --|
//                |------- alpha + beta b -----------|                    from post to arrival
//
// A rank sends and receives at the same time, one message in each direction. A send waits for the
// receives that it depends on, by the rules of the executor (data_flow()). Long chunks travel in
// slices, so a chain is a pipeline here as in the executor. With overhead = alpha and no slices
// this is the model of the literature: alpha + beta b for a message, one port in each direction. A
// smaller overhead gives LogP: the next message need not wait until the last one has arrived.
//
// The time until the last rank is done is the PATH: the time if every rank has a core. Ranks of one
// host share its cores, and moving bytes costs time on a core at both ends. The WORK of all ranks
// takes its time on these cores whatever the path is (copies within a rank not shown). It does not
// hide behind the latencies of messages that wait for each other: then all ranks wait.
//
//     work    = messages * 2 overhead + bytes * 2 copy + bytes added * gamma      core-seconds
//     latency = most messages that wait for each other * (alpha - overhead)
//     time    = max(path, latency + work / cores)
//
// Also, a rank that receives a message must wait for its turn on a core: with p ranks, alpha grows
// by turn * (p / cores - 1). On a laptop with more ranks than cores these two effects dominate
// (docs/performance.md).
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
#include <iterator>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// The costs of moving and adding, in seconds. Any values can be given, for a network that is not
// here.
struct CostParameters {
  double alpha = 0;     // for a message without payload, from post to arrival
  double beta = 0;      // for each byte of a message
  double gamma = 0;     // for each byte that is added
  double overhead = 0;  // how long a message keeps sender and receiver busy; at most alpha
  double copy = 0;      // how long each byte keeps a core busy, at each end
  double turn = 0;      // added to alpha for each further rank on a core
  int cores = 0;        // shared by all ranks; 0: each rank has as many as it needs
  std::uint64_t slice_bytes = 0;      // maximum payload of a message; 0: chunks are not sliced
  std::uint64_t announced_bytes = 0;  // Transport::announced_bytes()
  bool operator==(const CostParameters&) const = default;
};

struct Sent {
  std::uint64_t messages = 0, bytes = 0;
  bool operator==(const Sent&) const = default;
};

struct Cost {
  double path = 0;     // seconds until the last rank is done, if each rank has a core
  double work = 0;     // core-seconds of all ranks together
  double latency = 0;  // seconds of the messages that wait for each other, without bytes and cores
  double seconds = 0;  // the estimate: max(path, latency + work / cores)
  std::vector<Sent> sent;  // [rank]
};

// What the walk misses of one algorithm with so many ranks on one machine: measured time / walked
// time. NCCL corrects its model in the same way, with constants (src/graph/tuning.cc,
// treeCorrectionFactor).
struct Correction {
  static constexpr std::uint64_t lengths[] = {1000,    16000,   64000,   256000,
                                              1000000, 8000000, 32000000};
  std::uint64_t algorithm = 0;  // number_of() it
  std::uint64_t ranks = 0;
  double factors[std::size(lengths)] = {};  // for a buffer of each of the lengths
  bool operator==(const Correction&) const = default;
};

// The costs of one machine, where a byte costs more if the ranks' buffers do not fit into the
// cache. The costs per byte are measured with buffers of three lengths and interpolated between
// them, on a logarithmic scale.
struct MachineCosts {
  static constexpr std::uint64_t lengths[] = {64000, 1000000, 16000000};
  struct PerByte {
    double beta = 0, copy = 0, gamma = 0;
    bool operator==(const PerByte&) const = default;
  };
  CostParameters common;     // without beta, copy and gamma
  PerByte per_byte[3] = {};  // at each of the lengths
  std::vector<Correction> corrections = {};
  CostParameters at(std::uint64_t buffer_bytes) const;
  // The factor for a call, interpolated likewise; 1 if it was not measured.
  double correction(const Algorithm& algorithm, int ranks, std::uint64_t buffer_bytes) const;
  // What a call takes here: by a walk, or as it is announced.
  double uncorrected_seconds_of(const Algorithm& algorithm, int ranks,
                                std::uint64_t buffer_bytes) const;
  double seconds_of(const Algorithm& algorithm, int ranks, std::uint64_t buffer_bytes) const;
  // At most seconds_of(), within rounding errors, and without a walk.
  double least_seconds_of(const Algorithm& algorithm, int ranks, std::uint64_t buffer_bytes) const;
  bool announces(const Algorithm& algorithm) const {
    return algorithm.direct && common.announced_bytes > 0;
  }
  bool operator==(const MachineCosts&) const = default;
};

// schedules[r] belongs to rank r; `chunks` divides the buffer, in elements of `element_bytes`.
// Throws Error if a schedule waits for a message that is never sent.
Cost cost_of(const std::vector<Schedule>& schedules, const Chunks& chunks,
             std::size_t element_bytes, const CostParameters& parameters);

// At most cost_of(...).seconds, within rounding errors, in a fraction of the time that cost_of()
// takes: no rank is done before its own messages are, nor are all before their cores have done the
// work.
double least_seconds(const std::vector<Schedule>& schedules, const Chunks& chunks,
                     std::size_t element_bytes, const CostParameters& parameters);

// The same as cost_of() for a buffer of `bytes`, divided as evenly as possible.
Cost cost_of(const Algorithm& algorithm, int size, std::uint64_t bytes,
             const CostParameters& parameters);

}  // namespace ringside::collectives
