#include "planning/plan.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/proof/verify.hpp"

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

Recomputation recomputation_from(const std::string& text) {
  if (text == name_of(Recompute::selective)) return Recompute::selective;
  return transformer::recompute_groups_from(text);
}

std::string text_of(const Recomputation& recompute) {
  return recompute.kind == Recompute::selective ? std::string(name_of(recompute.kind))
                                                : transformer::text_of(recompute.groups);
}

Types types_of(autograd::DType dtype) {
  const auto bytes = static_cast<double>(autograd::size_of(dtype));
  return {.parameters = bytes, .gradients = bytes, .activations = bytes};
}

namespace {

bool is_from_file(const Plan& plan) {
  return plan.schedule.starts_with("csv:");
}

const pipeline_parallel::Generator* generator_of(const std::string& schedule) {
  for (const pipeline_parallel::Generator& generator : pipeline_parallel::all_generators())
    if (generator.name == schedule) return &generator;
  return nullptr;
}

}  // namespace

bool takes_chunks(const std::string& schedule) {
  const auto* generator = generator_of(schedule);
  return generator && generator->most_stages_per_rank == pipeline_parallel::unlimited_stages;
}

int stages_per_rank(const Plan& plan) {
  if (takes_chunks(plan.schedule)) return static_cast<int>(plan.chunks);
  const auto* generator = generator_of(plan.schedule);
  return generator ? generator->default_stages_per_rank : 0;
}

std::vector<int> placement_of(const Plan& plan) {
  const int p = plan.mesh.size(Axis::pp);
  if (p == 1) return {0};
  if (const auto* generator = generator_of(plan.schedule))
    return generator->placement(p, stages_per_rank(plan));
  return pipeline_parallel::make_schedule(plan.schedule, p, static_cast<int>(plan.micro_batches))
      .rank_of;
}

namespace {

// Follows the actions of a rank, and notes what it holds in each.
class Holdings {
 public:
  // `others` micro-batches are in flight in each stage until its last B.
  Holdings(const pipeline_parallel::Schedule& schedule, std::int64_t layers, PipelinePart& part,
           double others)
      : schedule_(schedule),
        layers_(layers),
        part_(part),
        others_(others),
        has_gradients_(schedule.rank_of.size()) {
    now_.blocks = others * part.blocks, now_.heads = part.has_head ? others : 0;
  }

  void run(const pipeline_parallel::Action& action) {
    using pipeline_parallel::Kind;
    stage_ = action.stage;
    blocks_ = static_cast<double>(
        pipeline_parallel::layers_of_stage(layers_, schedule_.stages(), stage_).count());
    now_.is_at_head = stage_ + 1 == schedule_.stages();
    now_.is_first = false;
    if (action.kind == Kind::forward) forward();
    if (action.kind == Kind::backward) backward(action.micro_batch);
    if (action.kind == Kind::backward_input) backward_input();
    if (action.kind == Kind::backward_weight) backward_weight();
  }

 private:
  void forward() {
    now_.blocks += blocks_;
    note(now_.is_at_head ? Moment::At::head : Moment::At::forward);
    now_.heads += now_.is_at_head;
  }

  // From the last block to the first, and where it is here, the embedding.
  void backward(int micro_batch) {
    begin_gradients();
    now_.heads -= now_.is_at_head;
    now_.has_head_gradient |= now_.is_at_head;
    in_blocks(Moment::At::block, [](Moment& at, double done, double made) {
      at.blocks -= done, at.gradients += made;
    });
    at_embedding();
    if (micro_batch + 1 < schedule_.micro_batches) return;
    now_.blocks -= others_ * blocks_, now_.heads -= now_.is_at_head ? others_ : 0;
  }

  void backward_input() {
    now_.heads -= now_.is_at_head, now_.deferred_heads += now_.is_at_head;
    now_.has_head_gradient |= now_.is_at_head;
    in_blocks(Moment::At::block_input, [](Moment& at, double done, double) {
      at.blocks -= done, at.deferred_blocks += done;
    });
    at_embedding();
    now_.deferred_embeddings += stage_ == 0;
  }

  void backward_weight() {
    begin_gradients();
    in_blocks(Moment::At::weights, [](Moment& at, double done, double made) {
      at.deferred_blocks -= done, at.gradients += made;
    });
    now_.deferred_heads -= now_.is_at_head, now_.deferred_embeddings -= stage_ == 0;
  }

  void begin_gradients() {
    now_.is_first = !has_gradients_[static_cast<std::size_t>(stage_)];
    has_gradients_[static_cast<std::size_t>(stage_)] = true;
  }

  // Between the first and the last block all that is held changes evenly.
  template <class Change>
  void in_blocks(Moment::At at, const Change& change) {
    if (blocks_ == 0) return;  // a stage of the embedding or of the head alone
    const double makes = now_.is_first ? 1 : 0;
    now_.is_at_start = true;
    note(at);
    now_.is_at_start = false;
    Moment last = now_;
    change(last, blocks_ - 1, makes * (blocks_ - 1));
    std::swap(now_, last), note(at), std::swap(now_, last);
    change(now_, blocks_, makes * blocks_);
  }

  void at_embedding() {
    if (stage_ == 0) note(Moment::At::embedding), now_.has_embedding_gradient = true;
  }

  void note(Moment::At at) {
    now_.at = at;
    part_.blocks_in_flight = std::max(part_.blocks_in_flight, now_.blocks + now_.deferred_blocks);
    part_.moments.push_back(now_);
  }

  const pipeline_parallel::Schedule& schedule_;
  const std::int64_t layers_;
  PipelinePart& part_;
  const double others_;
  std::vector<bool> has_gradients_;  // [stage]: whether a B or W has begun
  Moment now_;
  int stage_ = 0;
  double blocks_ = 0;  // of the stage
};

}  // namespace

// Every schedule of the catalogue has its steady state by 8 p micro-batches; without a pipeline it
// has it by the second one.
pipeline_parallel::Schedule schedule_of_rank(const Plan& plan, int rank) {
  const int p = plan.mesh.size(Axis::pp), v = stages_per_rank(plan);
  const auto m = static_cast<int>(
      is_from_file(plan) ? plan.micro_batches : std::min<std::int64_t>(plan.micro_batches, 8 * p));
  if (p == 1) return pipeline_parallel::make_schedule("1f1b", 1, std::min(m, 2));
  if (const auto* generator = generator_of(plan.schedule)) {
    pipeline_parallel::Schedule schedule{m, generator->placement(p, v), {}};
    schedule.actions.resize(static_cast<std::size_t>(p));
    schedule.actions[static_cast<std::size_t>(rank)] = generator->make(p, v, m, rank);
    return schedule;
  }
  return pipeline_parallel::make_schedule(plan.schedule, p, m);
}

PipelinePart pipeline_part(const Model& model, const Plan& plan, std::int64_t rank) {
  const int p = plan.mesh.size(Axis::pp), here = static_cast<int>(rank);
  const auto schedule = schedule_of_rank(plan, here);
  // No later moment holds more, but where all go forward first, all others that have done so.
  const bool grows = p > 1 && (plan.schedule == "gpipe" || plan.schedule == "looped_bfs");
  const auto others = grows ? static_cast<double>(plan.micro_batches - schedule.micro_batches) : 0;
  PipelinePart part{.has_embedding = schedule.rank_of.front() == here,
                    .has_head = schedule.rank_of.back() == here};
  for (const int stage : stages_of(schedule, here)) {
    part.blocks += static_cast<double>(
        pipeline_parallel::layers_of_stage(model.layers, schedule.stages(), stage).count());
    for (const int other : {stage - 1, stage + 1})
      part.messages += schedule.has_stage(other) && schedule.rank_of[other] != here;
  }
  Holdings holdings(schedule, model.layers, part, others);
  for (const auto& action : schedule.actions[static_cast<std::size_t>(rank)]) holdings.run(action);
  return part;
}

namespace {

// Of a schedule that is not in the catalogue. Throws Error if there is none, or if it hangs.
void require_right(const Plan& plan) {
  if (is_from_file(plan) && plan.mesh.size(Axis::pp) == 1) return;
  const auto problems = verify(pipeline_parallel::make_schedule(
      plan.schedule, plan.mesh.size(Axis::pp), static_cast<int>(plan.micro_batches)));
  require(problems.empty(), "{} cannot run: {}", plan.schedule, fmt::join(problems, "; "));
}

}  // namespace

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
  const auto* generator = generator_of(plan.schedule);
  require(!generator || plan.chunks == 1 || plan.chunks == stages_per_rank(plan),
          "--chunks {} needs --schedule interleaved, looped_bfs or interleaved_zb, not {}",
          plan.chunks, plan.schedule);
  require(!generator || !generator->whole_rounds || plan.micro_batches % p == 0,
          "the {} schedule needs a multiple of pp={} micro-batches, not {}", plan.schedule, p,
          plan.micro_batches);
  if (!generator) require_right(plan);
  // The first stage may have the embedding alone and the last one the head (layers_of_stage()).
  const auto stages = static_cast<std::int64_t>(placement_of(plan).size());
  require(stages <= model.layers + (stages > p ? 2 : 0),
          "the {} blocks of {} do not suffice for {} stages: choose a smaller pp or fewer --chunks",
          model.layers, model.name, stages);
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
