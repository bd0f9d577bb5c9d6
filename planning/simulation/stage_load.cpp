#include "planning/simulation/stage_load.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "planning/formulas/communication.hpp"
#include "planning/formulas/parameters.hpp"
#include "planning/formulas/state.hpp"
#include "planning/formulas/symbols.hpp"
#include "planning/formulas/work.hpp"

namespace ringside::planning {
namespace {

using collectives::Collective;

// The stages of the schedule, each as a part of the pipeline.
std::vector<PipelinePart> stages_of(const Model& model, const Plan& plan) {
  const int count = static_cast<int>(placement_of(plan).size());
  std::vector<PipelinePart> stages;
  for (int s = 0; s < count; ++s)
    stages.push_back({.blocks = static_cast<double>(
                          pipeline_parallel::layers_of_stage(model.layers, count, s).count()),
                      .has_embedding = s == 0,
                      .has_head = s + 1 == count});
  return stages;
}

// Computing: products at the reached share of the peak, other ops at the memory's bandwidth, and
// the fixed cost of each kernel.
void add_computing(const Model& model, const Plan& plan, const Machine& machine,
                   const PipelinePart& stage, StageLoad& load) {
  const Quantity traffic = micro_batch_tokens(plan) * block_forward_traffic(model, plan);
  const double forward =
      product_seconds(busiest_forward_flops(model, plan), block_width(model, plan), plan, machine)
          .value() +
      memory_seconds(traffic, machine).value() +
      kernel_seconds(block_forward_kernels(model), machine).value();
  const double whole = block_seconds(model, plan, machine).value();
  load.blocks = std::max(1.0, stage.blocks);
  load.forward = stage.blocks * forward;
  // The gradients of the weights are half of backward, without what is computed again.
  load.weight = stage.blocks * forward;
  load.input = stage.blocks * (whole - 2 * forward);
  if (!stage.has_head || model.vocabulary == 0) return;
  const double head = head_seconds(model, plan, machine).value();
  if (model.own) {
    load.forward += head;
  } else {
    for (double* part : {&load.forward, &load.input, &load.weight}) *part += head / 3;
  }
}

// Calls of a block as in tensor_calls_of_block() (formulas/communication.cpp), forward and backward
// apart.
void add_tensor_calls(const Model& model, const Plan& plan, const PipelinePart& stage,
                      StageLoad& load) {
  const double tokens = micro_batch_tokens(plan).value(),
               stream = tokens * static_cast<double>(model.d_model) * plan.types.activations,
               in_block = stream * tensor_rows(model).value();
  const double all = stage.blocks * tensor_calls_of_block(model, plan).value(),
               halves = stage.blocks * (model.heads == 0 ? 1 : 2);
  const Collective sum = Collective::all_reduce;
  if (plan.sequence_parallel) {
    // An all-gather and a reduce-scatter of the same buffer take the same time.
    load.tensor_forward.push_back({Collective::all_gather, 2 * halves, in_block});
    load.tensor_backward.push_back({Collective::all_gather, all - 2 * halves, in_block});
  } else {
    load.tensor_forward.push_back({sum, halves, in_block});
    load.tensor_backward.push_back({sum, all - halves, in_block});
  }
  if (model.vocabulary == 0) return;
  if (stage.has_embedding) load.tensor_forward.push_back({sum, 1, stream});
  if (!stage.has_head) return;
  load.tensor_forward.push_back({sum, 3, 4 * tokens});  // one fp32 number a token in each
  load.tensor_backward.push_back({sum, 1, stream});
}

// Calls of a block as in context_bytes_of_block() (formulas/communication.cpp), forward and
// backward apart. Attention takes its share of a block's FLOPs, twice as long in backward.
void add_context_calls(const Model& model, const Plan& plan, const PipelinePart& stage,
                       StageLoad& load) {
  const double c = plan.mesh.size(Axis::cp), t = tensor_ranks(plan).value(),
               tokens = micro_batch_tokens(plan).value(), e = plan.types.activations,
               q = static_cast<double>(model.q_width()),
               kv = static_cast<double>(
                   std::max(model.kv_width(), model.head_size * plan.mesh.size(Axis::tp))),
               own = 2 * tokens * kv / t, blocks = stage.blocks;
  using context_parallel::Exchange;
  if (plan.context.exchange == Exchange::all_gather) {
    load.context_forward = {{Collective::all_gather, blocks, c * e * own}};
    load.context_backward = {{Collective::reduce_scatter, blocks, c * e * own}};
  } else if (plan.context.exchange == Exchange::ring) {
    load.context_forward = {{Collective::point_to_point, blocks * (c - 1), e * own}};
    load.context_backward = {{Collective::point_to_point, blocks * (c - 1), e * own},
                             {Collective::point_to_point, blocks * c, std::max(4.0, e) * own}};
  } else {
    const Calls each{Collective::all_to_all, 4 * blocks, e * tokens * (2 * q + 2 * kv) / t / 4};
    load.context_forward = load.context_backward = {each};
  }
  for (int again = 0; again < plan.times_again(); ++again)
    load.context_backward.insert(load.context_backward.end(), load.context_forward.begin(),
                                 load.context_forward.end());
  const double share =
      attention_flops(model, plan).value() / block_forward_flops(model, plan).value();
  load.attention_forward = share * load.forward;
  load.attention_backward = share * (load.input + load.weight);
}

// Calls of a block as in expert_bytes_of_block() (formulas/communication.cpp): the counts of the
// rows, the rows, their outputs; and the gradients of both. The busiest rank receives and returns
// more rows than the mean.
void add_expert_calls(const Model& model, const Plan& plan, const PipelinePart& stage,
                      StageLoad& load) {
  const double rows = micro_batch_tokens(plan).value() * static_cast<double>(model.per_token()) *
                      static_cast<double>(model.d_model) * plan.types.activations,
               shards = plan.stage() > 0 ? static_cast<double>(plan.state_ranks()) : 1;
  const Collective kind = Collective::all_to_all;
  const Calls counts{kind, stage.blocks, 8 * static_cast<double>(model.experts->routed)},
      there_and_back{kind, 2 * stage.blocks, plan.imbalance * rows};
  load.expert_forward = {counts, there_and_back};
  load.expert_backward = {there_and_back};
  for (int again = 0; again < plan.times_again(); ++again)
    load.expert_backward.insert(load.expert_backward.end(), load.expert_forward.begin(),
                                load.expert_forward.end());
  load.average_shared = {Collective::all_reduce, 1,
                         plan.types.gradients *
                             parameters_beside_experts(model, tensor_ranks(plan), stage).value() /
                             shards};
}

void add_data_calls(const Model& model, const Plan& plan, const PipelinePart& stage,
                    StageLoad& load) {
  const Quantity t = tensor_ranks(plan);
  const double whole = stage_parameters(model, t, stage).value();
  if (plan.shards_parameters()) {
    const ShardedUnits units = sharded_units(model, t, stage);
    const double again = units.parameters_again.value();
    load.gather_forward = {Collective::all_gather, units.count,
                           plan.types.parameters * whole / units.count, units.hidden};
    load.gather_backward = {Collective::all_gather, units.again,
                            plan.types.parameters * again / units.again, units.hidden_again};
    load.scatter = {Collective::reduce_scatter, units.count,
                    plan.types.gradients * whole / units.count, units.hidden};
  }
  if (plan.state_ranks() > 1 && plan.stage() < 3) {
    const double gradients = plan.types.gradients * whole,
                 buckets = std::ceil(gradients / plan.bucket_bytes);
    const Collective kind = plan.stage() == 0 ? Collective::all_reduce : Collective::reduce_scatter;
    load.reduce = {kind, buckets, gradients / buckets};
    load.reduces_each = plan.stage() == 2;
    if (plan.stage() > 0)
      load.gather_updated = {Collective::all_gather, buckets,
                             plan.types.parameters * whole / buckets};
  }
  if (plan.copies() > 1)
    load.average_copies = {Collective::all_reduce, 1,
                           plan.types.gradients * whole / static_cast<double>(plan.state_ranks())};
}

}  // namespace

double Calls::sent(std::int64_t ranks) const {
  if (collective == Collective::point_to_point) return count * bytes;
  const auto n = static_cast<double>(ranks);
  return (collective == Collective::all_reduce ? 2 : 1) * count * bytes * (n - 1) / n;
}

void take_measured(const std::vector<MeasuredStage>& measured, PlanLoad& load) {
  require(
      measured.size() == load.stages.size(),
      "the trace has {} stages, but the plan has {}: name the mesh and the schedule of that run",
      measured.size(), load.stages.size());
  for (std::size_t stage = 0; stage < measured.size(); ++stage) {
    const MeasuredStage& seen = measured[stage];
    StageLoad& each = load.stages[stage];
    const double share = each.weight / (each.input + each.weight);
    each.forward = seen.forward;
    each.weight = seen.weight > 0 ? seen.weight : share * seen.backward;
    each.input = seen.backward - each.weight;
    each.optimizer = seen.optimizer;
  }
}

PlanLoad load_of(const Model& model, const Plan& plan, const Machine& machine) {
  PlanLoad load;
  load.state_axis = plan.state_axis();
  load.has_shards = plan.shards_parameters();
  if (plan.mesh.size(Axis::pp) > 1) load.message_bytes = boundary_bytes(model, plan).value();
  const Quantity t = tensor_ranks(plan);
  for (const PipelinePart& stage : stages_of(model, plan)) {
    StageLoad& each = load.stages.emplace_back();
    add_computing(model, plan, machine, stage, each);
    if (plan.mesh.size(Axis::tp) > 1) {
      add_tensor_calls(model, plan, stage, each);
      each.tensor_sums = tensor_bytes_of_sums(model, plan, stage).value();
    }
    if (plan.mesh.size(Axis::cp) > 1) add_context_calls(model, plan, stage, each);
    if (plan.mesh.size(Axis::ep) > 1) add_expert_calls(model, plan, stage, each);
    add_data_calls(model, plan, stage, each);
    const Quantity held = stage_parameters(model, t, stage);
    each.weight += memory_seconds(accumulation_traffic(held, plan), machine).value();
    each.optimizer =
        optimizer_seconds(optimizer_traffic(held, plan.types, shards_of(plan).optimizer), machine)
            .value();
  }
  return load;
}

}  // namespace ringside::planning
