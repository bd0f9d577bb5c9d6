#include "planning/simulation/step_formula.hpp"

#include "planning/formulas/communication.hpp"
#include "planning/formulas/symbols.hpp"
#include "planning/formulas/unit_gathers.hpp"
#include "planning/simulation/stage_load.hpp"

namespace ringside::planning {
namespace {

using collectives::Collective;

// What one of n ranks sends in these calls: a ring sends a buffer twice to sum it on all ranks, and
// once to gather or scatter it.
double sent_in(const Calls& calls, int n) {
  const double times = calls.collective == Collective::all_reduce ? 2 : 1;
  return times * calls.count * calls.bytes * (n - 1) / n;
}

}  // namespace

double StepFormula::held(std::size_t coordinate) const {
  const RankMemory& here = memory.at(coordinate);
  return bytes_of(here, "parameters") + bytes_of(here, "gradients") +
         bytes_of(here, "optimizer state");
}

StepFormula step_formula(const Model& whole, const Plan& plan) {
  const Model model = on_mesh(whole, plan.mesh);
  const std::vector<int> rank_of = placement_of(plan);
  const int t = plan.mesh.size(Axis::tp), n = static_cast<int>(plan.state_ranks()),
            c = plan.mesh.size(Axis::cp), x = plan.mesh.size(Axis::ep),
            p = plan.mesh.size(Axis::pp);
  const auto m = static_cast<double>(plan.micro_batches);
  // The machine decides about times only.
  const auto load = load_of(model, plan, find_machine("laptop"));
  StepFormula formula;
  for (const parallel::AxisEntry& entry : parallel::all_axes()) formula.sent[entry.axis] = 0;
  double &tp = formula.sent[Axis::tp], &pp = formula.sent[Axis::pp], &cp = formula.sent[Axis::cp],
         &copies = formula.sent[Axis::dp], &state = formula.sent[plan.state_axis()];
  if (c > 1)
    cp = m * static_cast<double>(model.layers) * context_bytes_of_block(model, plan).value() / p;
  // Along ep all but the experts is averaged.
  double& ep = formula.sent[Axis::ep];
  if (x > 1)
    ep = m * static_cast<double>(model.layers) * expert_bytes_of_block(model, plan).value() / p;
  for (std::int64_t i = 0; x > 1 && i < p; ++i)
    ep +=
        sent_in(
            {Collective::all_reduce, 1,
             plan.types.gradients *
                 parameters_beside_experts(model, tensor_ranks(plan), pipeline_part(model, plan, i))
                     .value() /
                 (plan.stage() > 0 ? n : 1)},
            x) /
        p;
  for (const StageLoad& stage : load.stages) {
    for (const auto* calls : {&stage.tensor_forward, &stage.tensor_backward})
      for (const Calls& each : *calls) tp += m * sent_in(each, t) / p;
    state += m * sent_in(stage.scatter, n) / p;
    state += (stage.reduces_each ? m : 1) * sent_in(stage.reduce, n) / p;
    state += sent_in(stage.gather_updated, n) / p;
    tp += stage.tensor_sums / p;
    copies += sent_in(stage.average_copies, static_cast<int>(plan.copies())) / p;
  }
  // All micro-batches pass each boundary between stages of different ranks, forward and backward.
  for (std::size_t stage = 1; stage < rank_of.size(); ++stage)
    if (rank_of[stage] != rank_of[stage - 1]) pp += 2 * m * load.message_bytes / p;
  for (int rank = 0; rank < p; ++rank) {
    formula.memory.push_back(memory_of_rank(model, plan, rank));
    const PipelinePart part{.has_embedding = rank_of.front() == rank,
                            .has_head = rank_of.back() == rank};
    pp += pipeline_bytes_of_sums(model, plan, part).value() / p;
    if (!plan.shards_parameters()) continue;
    const UnitGathers gathers = unit_gathers(model, plan, rank);
    state += plan.types.parameters * (gathers.forward + gathers.backward) * (n - 1) / n / p;
  }
  return formula;
}

}  // namespace ringside::planning
