// StageLoad: what one stage of a plan computes and sends, on one rank. The longest path is made of
// these durations.
//
// A stage is one of the schedule: a rank of the interleaved schedule holds `chunks` of them.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/collective.hpp"
#include "planning/machine.hpp"
#include "planning/model.hpp"
#include "planning/plan.hpp"

namespace ringside::planning {

// `count` collectives, each of a buffer of `bytes`: the whole buffer, on all ranks together; or
// messages of `bytes` to the next rank.
struct Calls {
  collectives::Collective collective = collectives::Collective::all_reduce;
  double count = 0;
  double bytes = 0;
  double hidden = 0;  // of sharded parameters: how many may run while a block computes
};

struct StageLoad {
  // Seconds that a rank computes for one micro-batch: forward, and the two halves of backward.
  double forward = 0, input = 0, weight = 0;
  double blocks = 1;  // that share these seconds
  // Tensor parallel, of one micro-batch. What follows needs their results.
  std::vector<Calls> tensor_forward, tensor_backward;
  // Context parallel, of one micro-batch: collectives that attention waits for, or a ring's
  // messages to the next rank, which are passed on while attention computes for so many seconds.
  std::vector<Calls> context_forward, context_backward;
  double attention_forward = 0, attention_backward = 0;
  double tensor_sums = 0;  // bytes that a rank sends once a step for gradients that ranks share
  // Sharded parameters (fsdp, or ZeRO stage 3), of one micro-batch: while a block computes, the
  // next unit is gathered, or the gradients of the one before are reduced.
  Calls gather_forward, gather_backward, scatter;
  // Where parameters are whole: gradients in buckets. ZeRO stage 2 reduces those of every
  // micro-batch.
  Calls reduce;
  bool reduces_each = false;
  // What ZeRO stages 1 and 2 gather after the optimizer's step.
  Calls gather_updated;
  // Along dp in a mesh with fsdp, when all gradients are reduced: the copies of a shard.
  Calls average_copies;
  double optimizer = 0;  // seconds
};

struct PlanLoad {
  std::vector<StageLoad> stages;  // in the order of forward
  double message_bytes = 0;       // of one micro-batch, between neighbouring stages
  std::string state_axis;         // the axis that shards or reduces: "fsdp" or "dp"
  bool has_shards = false;        // of parameters
};

// Seconds that a rank computed for one micro-batch of a stage, without what it waited for, and its
// share of the update; measured in a run.
struct MeasuredStage {
  double forward = 0;
  double backward = 0;  // whole
  double weight = 0;    // the part of it that the weights' gradients take; 0: was not apart
  double optimizer = 0;
};

// Takes measured times in place of the formulas'. A backward that was measured whole is divided as
// by the formulas. Throws Error if the plan has another number of stages.
void take_measured(const std::vector<MeasuredStage>& measured, PlanLoad& load);

// The formulas are those of account() (planning/formulas/). Gradients are reduced in buckets of
// 25 MB. The head of Ringside's own models computes its gradients in forward; those of published
// models take a third of the head's time in forward.
PlanLoad load_of(const Model& model, const Plan& plan, const Machine& machine);

}  // namespace ringside::planning
