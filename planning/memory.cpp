#include "planning/memory.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "planning/formulas/activations.hpp"
#include "planning/formulas/parameters.hpp"
#include "planning/formulas/state.hpp"
#include "planning/formulas/step_memory.hpp"
#include "planning/formulas/symbols.hpp"
#include "planning/formulas/under_way.hpp"

namespace ringside::planning {
namespace {

using autograd::MemoryKind;

// Fills a RankMemory: every row is the value of one of its terms.
class Rows {
 public:
  Rows(RankMemory& memory, const Model& model, const Plan& plan)
      : memory_(memory),
        model_(model),
        plan_(plan),
        t_(tensor_ranks(plan)),
        shards_(shards_of(plan)) {}

  void state(const Quantity& parameters);
  void units(const PipelinePart& part);
  void buckets(const PipelinePart& part, const Quantity& parameters);
  void activations(const PipelinePart& part);

 private:
  Term put(Term term) {
    memory_.terms.push_back(term);
    return term;
  }
  void row(const char* kind, MemoryKind counted, const Term& term) {
    if (const double bytes = put(term).value(); bytes > 0)
      memory_.rows.push_back({kind, counted, bytes});
  }

  RankMemory& memory_;
  const Model& model_;
  const Plan& plan_;
  const Quantity t_;
  const Shards shards_;
};

void Rows::state(const Quantity& parameters) {
  const Types& types = plan_.types;
  row("parameters", MemoryKind::parameters, parameter_bytes(parameters, types, shards_.parameters));
  const Quantity copies("n_g", plan_.gradient_copies);
  row("gradients", MemoryKind::gradients,
      gradient_bytes(plan_.gradient_copies > 1 ? copies * parameters : parameters, types,
                     shards_.gradients));
  row("masters", MemoryKind::optimizer_state, master_bytes(parameters, types, shards_.optimizer));
  row("optimizer state", MemoryKind::optimizer_state,
      moment_bytes(parameters, types, shards_.optimizer));
  // Ringside makes the whole part of the model, and then shards it.
  if (model_.own && shards_.parameters > 1)
    memory_.at_start = parameter_bytes(parameters, types, 1).value();
}

void Rows::units(const PipelinePart& part) {
  const Term block = put(whole_block(model_, t_)), largest = put(largest_unit(model_, t_, part));
  row("gathered units", MemoryKind::parameters, gathered_units(block, largest, plan_.types));
  row("gradients under way", MemoryKind::gradients, reduced_units(block, largest, plan_.types));
}

void Rows::buckets(const PipelinePart& part, const Quantity& parameters) {
  const Term largest = put(largest_parameter(model_, t_, part));
  row("gradients under way", MemoryKind::gradients,
      reduced_buckets(parameters, largest, plan_.bucket_bytes, plan_.types));
}

// The formulas of the moment with the most activations become rows. All kinds together may have
// their most at another moment, so their sum may never be there.
void Rows::activations(const PipelinePart& part) {
  const StepMemory step(model_, plan_, part);
  const Moment& at = step.most_activations();
  put(block_activations(model_, plan_));
  put(blocks_in_flight(plan_, part));
  if (at.deferred_blocks > 0) put(deferred_activations(model_, plan_));
  row("activations", MemoryKind::activations,
      {"A", "activations of the blocks", step.of_blocks(at), Unit::bytes,
       "blocks in flight, each with its activations; between I and W, what W needs"});
  const char* where = "while backward runs through a block";
  if (at.at == Moment::At::head)
    put(head_activations(model_, plan_)), where = "at the head";
  else if (at.at == Moment::At::embedding)
    put(embedding_activations(model_, plan_)), where = "while backward runs at the embedding";
  row("working memory", MemoryKind::activations,
      {"A_peak", where, step.working(at), Unit::bytes, "planning/formulas/activations.cpp"});
  if (!model_.own) return;
  const double moving = memory_.of(MemoryKind::activations) + memory_.of(MemoryKind::gradients) +
                        bytes_of(memory_, "gathered units");
  memory_.never_together = std::max(0.0, moving - step.most());
}

}  // namespace

double RankMemory::of(MemoryKind kind) const {
  double sum = 0;
  for (const MemoryRow& row : rows)
    if (row.counted == kind) sum += row.bytes;
  return sum;
}

double RankMemory::total() const {
  double sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return std::max(sum - never_together, at_start);
}

double bytes_of(const RankMemory& memory, std::string_view kind) {
  double bytes = 0;
  for (const MemoryRow& row : memory.rows)
    if (row.kind == kind) bytes += row.bytes;
  return bytes;
}

RankMemory memory_of_rank(const Model& whole, const Plan& plan, std::int64_t index) {
  const Model model = on_mesh(whole, plan.mesh);
  const std::int64_t stages = plan.mesh.size(Axis::pp);
  RankMemory memory;
  memory.name = stages == 1          ? "only"
                : index == 0         ? "first"
                : index + 1 < stages ? "middle"
                                     : "last";
  memory.index = index;
  Rows rows(memory, model, plan);
  if (!model.has_blocks()) {
    memory.terms.push_back(
        {"P_stage", "all parameters", parameter_count(model).back(), Unit::number, ""});
    rows.state(memory.terms.back());
    return memory;
  }
  const PipelinePart part = pipeline_part(model, plan, index);
  memory.terms.push_back({"P_stage", "parameters of the stage, on one rank",
                          stage_parameters(model, tensor_ranks(plan), part), Unit::number,
                          "sum of its parts"});
  const Term held = memory.terms.back();
  rows.state(held);
  if (shards_of(plan).parameters > 1) rows.units(part);
  if (plan.stage() == 2 && plan.state_ranks() > 1) rows.buckets(part, held);
  rows.activations(part);
  return memory;
}

RankMemory memory_of_largest_rank(const Model& model, const Plan& plan) {
  RankMemory largest;
  for (std::int64_t index = 0; index < plan.mesh.size(Axis::pp); ++index) {
    RankMemory memory = memory_of_rank(model, plan, index);
    if (memory.total() > largest.total()) largest = std::move(memory);
  }
  return largest;
}

std::vector<RankMemory> memory_of_stages(const Model& model, const Plan& plan) {
  const std::int64_t stages = plan.mesh.size(Axis::pp);
  std::vector<RankMemory> memory;
  for (const std::int64_t index : std::set<std::int64_t>{0, stages > 2 ? 1 : 0, stages - 1})
    memory.push_back(memory_of_rank(model, plan, index));
  return memory;
}

}  // namespace ringside::planning
