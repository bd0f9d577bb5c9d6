#include "planning/plan.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"

namespace ringside::planning {
std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& generator : pipeline_parallel::all_generators())
    names.emplace_back(generator.name);
  return names;
}

const std::vector<std::string>& recompute_names() {
  static const std::vector<std::string> names = {"none", "selective", "full"};
  return names;
}

std::string_view name_of(Recompute recompute) {
  return recompute_names()[static_cast<std::size_t>(recompute)];
}

Types types_of(autograd::DType dtype) {
  const auto bytes = static_cast<double>(autograd::size_of(dtype));
  return {.parameters = bytes, .gradients = bytes, .activations = bytes};
}

int stages_per_rank(const Plan& plan) {
  return plan.schedule == "zb_v" ? 2 : static_cast<int>(plan.chunks);
}

namespace {

void count_in_flight(const pipeline_parallel::Schedule& schedule, int rank, std::int64_t layers,
                     PipelinePart& part) {
  using pipeline_parallel::Kind;
  double blocks = 0, heads = 0;
  part.blocks_in_flight = part.heads_in_flight = 0;
  for (const auto& [kind, stage, micro_batch] : schedule.actions[static_cast<std::size_t>(rank)]) {
    const bool at_head = stage + 1 == schedule.stages();
    const auto here = static_cast<double>(
        pipeline_parallel::layers_of_stage(layers, schedule.stages(), stage).count());
    if (kind == Kind::forward) blocks += here, heads += at_head;
    part.blocks_in_flight = std::max(part.blocks_in_flight, blocks);
    part.heads_in_flight = std::max(part.heads_in_flight, heads);
    if (kind == Kind::backward || kind == Kind::backward_weight) blocks -= here;
    if (kind == Kind::backward || kind == Kind::backward_input) heads -= at_head;
    part.splits_backward = part.splits_backward || kind == Kind::backward_weight;
  }
}

// The schedule with the actions of one rank only, because thousands of plans are tried.
pipeline_parallel::Schedule schedule_of_rank(const Plan& plan, int rank, std::int64_t count) {
  const int p = plan.mesh.size(Axis::pp), v = stages_per_rank(plan), m = static_cast<int>(count);
  for (const pipeline_parallel::Generator& generator : pipeline_parallel::all_generators()) {
    if (generator.name != plan.schedule) continue;
    pipeline_parallel::Schedule schedule{m, generator.placement(p, v), {}};
    schedule.actions.resize(static_cast<std::size_t>(p));
    schedule.actions[static_cast<std::size_t>(rank)] = generator.make(p, v, m, rank);
    return schedule;
  }
  return pipeline_parallel::make_schedule(plan.schedule, p, m);
}

}  // namespace

PipelinePart pipeline_part(const Model& model, const Plan& plan, std::int64_t rank) {
  const int p = plan.mesh.size(Axis::pp), here = static_cast<int>(rank);
  if (p == 1) {
    const auto all = static_cast<double>(model.layers);
    return {.blocks = all, .blocks_in_flight = all};
  }
  // Every schedule of the catalogue has its steady state by then: from there on what is in flight
  // grows evenly, or not at all.
  const std::int64_t m = plan.micro_batches, enough = 4 * p;
  const bool extend = m > 2 * enough && !plan.schedule.starts_with("csv:");
  const auto schedule = schedule_of_rank(plan, here, extend ? 2 * enough : m);
  PipelinePart part{.has_embedding = schedule.rank_of.front() == here,
                    .has_head = schedule.rank_of.back() == here};
  for (const int stage : stages_of(schedule, here))
    part.blocks += static_cast<double>(
        pipeline_parallel::layers_of_stage(model.layers, schedule.stages(), stage).count());
  count_in_flight(schedule, here, model.layers, part);
  if (extend) {
    PipelinePart half;
    count_in_flight(schedule_of_rank(plan, here, enough), here, model.layers, half);
    const double more = static_cast<double>(m) / static_cast<double>(enough) - 2;
    part.blocks_in_flight += more * (part.blocks_in_flight - half.blocks_in_flight);
    part.heads_in_flight += more * (part.heads_in_flight - half.heads_in_flight);
  }
  return part;
}

void validate(const Plan& plan, const Model& model) {
  const std::int64_t t = plan.mesh.size(Axis::tp), p = plan.mesh.size(Axis::pp);
  require(model.has_blocks() || (t == 1 && p == 1),
          "only the state of {} can be accounted for, and only with the axes dp and fsdp: leave "
          "out tp and pp",
          model.name);
  const int n = plan.mesh.size(Axis::ep);
  require(n == 1 || model.experts, "ep divides experts, and {} has none: leave out ep", model.name);
  require(n == 1 || model.experts->routed % n == 0, "the {} experts of {} do not divide by ep={}",
          model.experts ? model.experts->routed : 0, model.name, n);
  if (!model.has_blocks()) return;
  require(!plan.sequence_parallel || !model.experts,
          "sequence parallel is not known for models with experts: leave out --sequence-parallel");
  require(model.heads % t == 0, "the {} heads of {} do not divide by tp={}", model.heads,
          model.name, t);
  require(model.d_ff % t == 0, "d_ff {} of {} does not divide by tp={}", model.d_ff, model.name, t);
  require(model.kv_heads % t == 0 || t % model.kv_heads == 0,
          "the {} key and value heads of {} can neither be divided nor replicated evenly over "
          "tp={}",
          model.kv_heads, model.name, t);
  require(p <= model.layers, "pp={} has more stages than {} has blocks ({})", p, model.name,
          model.layers);
  require(plan.schedule == "interleaved" || plan.chunks == 1,
          "--chunks {} needs --schedule interleaved, not {}", plan.chunks, plan.schedule);
  const std::int64_t chunks = stages_per_rank(plan);
  require((plan.schedule != "interleaved" && chunks == 1) || model.layers % (p * chunks) == 0,
          "the {} blocks of {} do not divide into pp={} stages of {} chunks", model.layers,
          model.name, p, chunks);
  require(plan.schedule != "interleaved" || plan.micro_batches % p == 0,
          "the interleaved schedule needs a multiple of pp={} micro-batches, not {}", p,
          plan.micro_batches);
  require(!plan.sequence_parallel || t > 1,
          "--sequence-parallel needs tensor parallel: tp=2 or "
          "more in --mesh");
  const int c = plan.mesh.size(Axis::cp);
  require(
      c == 1 || model.kind == Model::Kind::llama,
      "context parallel is known for models with fused attention only, not for {}: leave out cp",
      model.name);
  context_parallel::require_divisible(plan.context, c, plan.sequence, model.heads / t,
                                      std::max<std::int64_t>(1, model.kv_heads / t));
  require(!plan.sequence_parallel || plan.rank_sequence() % t == 0,
          "sequence parallel divides a sequence of {} tokens by tp={}, which leaves a remainder",
          plan.rank_sequence(), t);
}

}  // namespace ringside::planning
