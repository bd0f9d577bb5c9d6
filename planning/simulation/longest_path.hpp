// LongestPath: when each action of a pipeline schedule starts and ends on every rank of a mesh, if
// nobody else uses the network.
//
// An action starts when three things are there: its rank, the message it needs, and the ranks that
// it communicates with. So its end is the length of the longest path that leads to it:
//
//     replica 0   rank 0   F0 F1       B0    B1    REDUCE ┐
//                            ╲ ╲      ╱     ╱             │ starts when the last replica is ready
//                 rank 1      F0 B0 F1 B1                 │
//     replica 1   rank 0   F0  F1        B0     B1        ┘
//
// A unit is the tensor-parallel and context-parallel ranks of one pipeline rank in one replica.
// They exchange activations or keys in every block, so they go in step, as fast as the slowest of
// them.
//
// Nothing here depends on the order of time: the schedule gives an order in which each action
// comes after all that it waits for, and one pass in that order computes everything. A network on
// which transfers slow each other down needs another engine (congestion.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/proof/timing.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "planning/simulation/mesh_ranks.hpp"
#include "planning/simulation/stragglers.hpp"

namespace ringside::planning {

// The calls of sharded parameters in one micro-batch, one for each unit.
struct UnitCalls {
  double count = 0, seconds = 0;  // seconds of each
  double hidden = 0;              // how many run behind a block: calls_behind_blocks()
  auto operator<=>(const UnitCalls&) const = default;
};

// Durations of one stage of one replica, in seconds, for one micro-batch.
struct StageTimes {
  double forward = 0, input = 0, weight = 0;  // computing; backward is input and weight
  // Calls that nothing hides: tensor-parallel and expert-parallel ones, and of context parallel
  // what attention does not.
  double tensor_forward = 0, tensor_backward = 0;
  UnitCalls gather_forward = {}, gather_backward = {}, scatter = {};  // of sharded parameters
  double blocks = 1;                        // that share the time of computing
  double message_on = 0, message_back = 0;  // to the next stage, and to the stage before
  int buckets = 0;                          // of gradients, over the replicas
  double bucket = 0;                        // seconds of each
  bool reduces_each = false;                // in every micro-batch, not only in the last
  auto operator<=>(const StageTimes&) const = default;
};

struct Replica {
  std::vector<StageTimes> stages;
  std::vector<RankGroup> units;  // [pipeline rank] its tensor-parallel and context-parallel ranks
  std::int64_t count = 1;        // identical replicas that this one stands for
  // Replicas of one reduce group reduce their gradients together. Those of one shard group gather
  // each other's parameters, or compute each other's tokens, so they go in step.
  std::int64_t reduce_group = 0, shard_group = 0;
};

struct PathInput {
  pipeline_parallel::Schedule lowered;  // verify() has proved it
  std::vector<Replica> replicas;
  double overlap = 1;  // the share of communication that can run while a rank computes
  Stragglers stragglers;
};

struct Timeline {
  // What one replica does: spans and busy as of time_of() (parallel/pipeline/proof/timing.hpp). The
  // span of a reduction is that of its communication. `busy` includes tensor-parallel calls and
  // exposed communication of sharded parameters.
  std::vector<pipeline_parallel::Timing> replicas;
  // [replica][rank][action] the exposed communication within a computation, in seconds.
  std::vector<std::vector<std::vector<double>>> exposed;
  double computed = 0;  // the last end of a computation: the step of the pipeline formulas
  double reduced = 0;   // when all gradients are reduced, too

  // The idle part of all units until `computed`: the bubble of the pipeline formulas.
  double bubble(const std::vector<Replica>& replicas) const;
};

// Throws Error if the schedule hangs.
Timeline longest_path(const PathInput& input);

}  // namespace ringside::planning
