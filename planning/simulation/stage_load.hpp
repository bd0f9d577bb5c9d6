// StageLoad: what one stage of a plan computes and sends, on one rank. The longest path is made of
// these durations.
//
// A stage is one of the schedule: a rank of the interleaved schedule holds `chunks` of them.
#pragma once

#include <cstdint>
#include <utility>
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

  // Bytes that one of n ranks sends in these calls: a ring sends a buffer twice to sum it on all
  // ranks, and once to gather or scatter it.
  double sent(std::int64_t ranks) const;
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
  // Expert parallel, of one micro-batch: experts wait for their rows, and what follows for theirs.
  std::vector<Calls> expert_forward, expert_backward;
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
  // Then along ep: gradients of all but the experts.
  Calls average_shared;
  double optimizer = 0;  // seconds
};

struct PlanLoad {
  // The calls of a stage along an axis in one step, so many times: visit(axis, calls, times).
  template <class Visit>
  void for_calls(const StageLoad& stage, double micro_batches, const Visit& visit) const {
    for (const auto& [axis, lists] :
         {std::pair(Axis::tp, std::pair(&stage.tensor_forward, &stage.tensor_backward)),
          {Axis::cp, {&stage.context_forward, &stage.context_backward}},
          {Axis::ep, {&stage.expert_forward, &stage.expert_backward}}})
      for (const auto* calls : {lists.first, lists.second})
        for (const Calls& each : *calls) visit(axis, each, micro_batches);
    for (const Calls* calls : {&stage.gather_forward, &stage.gather_backward, &stage.scatter})
      visit(state_axis, *calls, micro_batches);
    visit(state_axis, stage.reduce, stage.reduces_each ? micro_batches : 1);
    visit(state_axis, stage.gather_updated, 1);
    visit(Axis::dp, stage.average_copies, 1);
    visit(Axis::ep, stage.average_shared, 1);
  }

  std::vector<StageLoad> stages;  // in the order of forward
  double message_bytes = 0;       // of one micro-batch, between neighbouring stages
  Axis state_axis = Axis::dp;     // shards or reduces: Plan::state_axis()
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
