#include "planning/simulation/step_formula.hpp"

#include "planning/formulas/communication.hpp"
#include "planning/formulas/unit_gathers.hpp"
#include "planning/simulation/stage_load.hpp"

namespace ringside::planning {

double StepFormula::held(std::size_t coordinate) const {
  const RankMemory& here = memory.at(coordinate);
  return bytes_of(here, "parameters") + bytes_of(here, "gradients") +
         bytes_of(here, "optimizer state");
}

StepFormula step_formula(const Model& whole, const Plan& plan) {
  const Model model = on_mesh(whole, plan.mesh);
  const std::vector<int> rank_of = placement_of(plan);
  const int p = plan.mesh.size(Axis::pp);
  const auto m = static_cast<double>(plan.micro_batches);
  // The machine decides about times only.
  const auto load = load_of(model, plan, find_machine("laptop"));
  StepFormula formula;
  for (const parallel::AxisEntry& entry : parallel::all_axes()) formula.sent[entry.axis] = 0;
  double &pp = formula.sent[Axis::pp], &state = formula.sent[plan.state_axis()];
  const auto n = static_cast<double>(plan.state_ranks());
  const auto ranks = [&](Axis axis) {
    if (axis == plan.state_axis() && axis != Axis::cp) return plan.state_ranks();
    return axis == Axis::dp ? plan.copies() : plan.mesh.size(axis);
  };
  for (const StageLoad& stage : load.stages) {
    load.for_calls(stage, m, [&](Axis axis, const Calls& calls, double times) {
      // Gathers are counted below: a unit may stay whole from one action to the next.
      if (&calls != &stage.gather_forward && &calls != &stage.gather_backward)
        formula.sent[axis] += times * calls.sent(ranks(axis)) / p;
    });
    formula.sent[Axis::tp] += stage.tensor_sums / p;
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
