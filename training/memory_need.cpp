#include "training/memory_need.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/ops/ops.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::training {
namespace {

using parallel::Axis;
using transformer::Config;

// Of an element of the parameters: AdamW's two moments, at least in fp32, and an fp32 master of
// bf16.
double optimizer_bytes(autograd::DType dtype, OptimizerKind kind) {
  const auto e = double(size_of(dtype));
  return (e < 4 ? 4 : 0) + (kind == OptimizerKind::adamw ? 2 * std::max(4.0, e) : 0);
}

// Whether gradients have memory of their own, which backward allocates and the step frees.
bool has_no_buckets(const std::string& strategy) {
  return strategy == "single" || strategy == "naive" || strategy == "overlap" || strategy == "flat";
}

// Bytes of activations on a rank, for one micro-batch, counted op by op on transformer/layers.cpp.
struct Activations {
  double block = 0, input = 0;      // what backward needs of a block; its input alone
  double backward = 0, head = 0;    // beside that, in a block in backward; at the head in forward
  double whole = 0;                 // a number for each element of a token's vector
  double down = 0, vocabulary = 0;  // gradients of these matrices: down projections of a block
};

// Kept for each token: the block's input and the sum before the second norm, both in the residual
// stream; both normed inputs; q, k, v and the output of attention; gate, up and their product; one
// number per head and per norm. With experts: K rows for them and K outputs, and the router's
// logits. With norms of heads: q and k before them, and a number per head. With all_gather of cp:
// the keys and values of all ranks.
//
// Backward has the gradient of the block's output and, at the down projection, that of its input
// and of its matrix; at gate and up theirs; at the normed input one by gate and one by up.
//
// The head computes some rows of logits at a time, and the gradient of its matrix with them. The
// CPU converts bf16 to fp32 meanwhile; a device does not, but its logits are fp32.
Activations activations_of(const Plan& plan, const MeshPlan& mesh) {
  const Config& c = plan.config;
  const std::int64_t shares =
                         std::max<std::int64_t>(1, mesh.data_ranks() * plan.options.accumulate),
                     tokens = (plan.options.batch + shares - 1) / shares *
                              (plan.options.sequence / mesh.shape.size(Axis::cp));
  const double t = mesh.shape.size(Axis::tp), e = double(size_of(plan.dtype)),
               T = e * double(tokens), d = double(c.head_size()), h = double(c.d_model),
               V = double(c.vocabulary) / t, E = double(c.experts),
               K = E > 0 ? double(c.experts_per_token) : 1, f = double(c.d_ff) / t,
               q = double(c.heads) * d / t, kv = std::max(double(c.kv_heads) / t, 1.0) * d,
               logits = double(autograd::cross_entropy_rows(tokens, c.vocabulary, plan.device)) * V,
               whole = T * h, stream = mesh.sequence_parallel ? whole / t : whole,
               inside = T * K * f, rows = E > 0 ? 2 * K * whole : 0;
  const bool gathers = mesh.context.exchange == context_parallel::Exchange::all_gather;
  Activations x;
  x.block = 2 * whole + 2 * stream + rows + 3 * inside + (E > 0 ? T / e * 20 * K : 0) +
            T * (2 + 2 * q + 2 * kv * (gathers ? mesh.shape.size(Axis::cp) : 1) +
                 double(c.heads) / t + E + (c.qk_norm ? (q + kv) * (1 + 1 / d) : 0));
  x.input = stream, x.whole = whole, x.vocabulary = e * h * V;
  x.down = e * h * f * (E > 0 ? E / mesh.shape.size(Axis::ep) : 1);
  x.backward = std::max({whole + (mesh.sequence_parallel ? stream : 0) + rows + inside + x.down,
                         stream + rows + 2 * inside, 2 * whole + stream});
  x.head = e * logits + x.vocabulary + 3 * whole;
  if (plan.dtype == autograd::DType::bf16)
    x.head += plan.device == autograd::Device::cpu ? 6 * h * V + 2 * logits : 4 * (h * V + logits);
  return x;
}

// The most that a rank holds in a step of activations, and with the gradients of backward.
struct Peak {
  const Activations& x;
  const transformer::RecomputeGroups& groups;
  const transformer::ModelPart& part;
  double blocks, heads, sent;  // of a stage; micro-batches at the head; what the next stage sends
  double activations = 0, all = 0;

  void note(double now, double gradients) {
    activations = std::max(activations, now), all = std::max(all, now + gradients);
  }
  void note_in_flight(double count, double made, double block);
};

// While `count` micro-batches of a stage are between forward and backward. `made` bytes of
// gradients are there; backward makes others, of so many bytes for a block.
void Peak::note_in_flight(double count, double made, double block) {
  const auto group = double(groups.blocks);
  const double one = group > 0 ? std::ceil(blocks / group) * x.input : blocks * x.block,
               kept = count * one +
                      std::max(0.0, std::min(heads, count) - 1) * (x.vocabulary + 2 * x.whole),
               of_head = block > 0 && part.head ? x.vocabulary : 0;
  if (part.head) note(kept + x.head, made);
  // In the first block that backward enters, in the last group that it computes again, and in its
  // last block: between them all changes evenly.
  for (const double left : {blocks, std::clamp(group, 1.0, std::max(1.0, blocks)), 1.0}) {
    const double done = 1 - left / blocks, again = std::min(left, group),
                 inner = std::min(again, double(groups.inner));
    note(kept - done * one + x.backward + sent +
             (inner > 0 ? inner * x.block + again / inner * x.input : again * x.block),
         made + of_head + done * blocks * block);
  }
  if (part.embedding)
    note(kept - one + x.vocabulary + 3 * x.whole, made + of_head + blocks * block);
}

// Forward without history keeps less than a block, and so many numbers at its end.
MemoryNeed without_history(const Plan& plan, double numbers) {
  const double e = double(size_of(plan.dtype)),
               parameters = e * double(parameter_count(plan.config)),
               activations = activations_of(plan, {}).block + e * numbers;
  return {.parameters = parameters, .activations = activations, .peak = parameters + activations};
}

}  // namespace

double gradient_copies(const std::string& strategy, autograd::DType dtype, double ranks) {
  if (is_strategy_library(strategy)) return 1;
  if (strategy == "bf16_wire")  // errors, those of this rank's block, and two buffers of bf16
    return 2 + 1 / ranks + 2 * 2 / double(size_of(dtype));
  if (strategy.starts_with("diloco")) return 4;  // the mean of the replicas, theta and v
  const bool has_second = strategy == "flat" || strategy.starts_with("powersgd") ||  // errors
                          strategy.starts_with("local_sgd");  // the mean of the replicas
  return has_second ? 2 : 1;
}

MemoryNeed memory_of_rank(const Plan& plan, int data_ranks, int pipeline_rank) {
  MeshPlan mesh = plan.mesh;
  if (!mesh.given()) mesh.shape = mesh.shape.with(Axis::dp, data_ranks);
  const pipeline_parallel::Schedule schedule =
      mesh.schedule.stages() > 0
          ? mesh.schedule
          : pipeline_parallel::make_schedule("1f1b", 1, plan.options.accumulate > 1 ? 2 : 1);
  transformer::ModelPart part;
  part.tensor_ranks = mesh.shape.size(Axis::tp), part.expert_ranks = mesh.shape.size(Axis::ep);
  part.embedding = schedule.rank_of.front() == pipeline_rank;
  part.head = schedule.rank_of.back() == pipeline_rank;
  const std::vector<int> its_stages = stages_of(schedule, pipeline_rank);
  const auto stages = double(its_stages.size());
  double blocks = 0;
  for (const int each : its_stages)
    blocks += double(
        pipeline_parallel::layers_of_stage(plan.config.layers, schedule.stages(), each).count());
  // All blocks are alike, and there may be more than a table can list.
  Config one_block = plan.config;
  one_block.layers = 1;
  const transformer::ParameterTable table(one_block);
  const double e = double(size_of(plan.dtype));
  double block = 0, all = 0;  // bytes of parameters
  for (const transformer::ParameterEntry& entry : table.entries()) {
    if (!name_in(part, entry)) continue;
    const double bytes = e * double(entry.region(0, part.tensor_ranks).elements());
    all += bytes * (entry.layer == 0 ? blocks : 1), block += entry.layer == 0 ? bytes : 0;
  }

  const Activations x = activations_of(plan, mesh);
  double N = 1;  // ranks that shard
  for (const Axis axis : gradient_axes(mesh.shape).inner) N *= mesh.shape.size(axis);
  const bool shards =
      plan.strategy.starts_with("zero") && N > 1 && !is_strategy_library(plan.strategy);
  const int stage = shards ? plan.strategy[4] - '0' : 0;
  MemoryNeed need{
      .parameters = stage == 3 ? all / N : all,
      .gradients = stage >= 2 ? all / N : gradient_copies(plan.strategy, plan.dtype, N) * all,
      .optimizer =
          all / e * optimizer_bytes(plan.dtype, plan.options.optimizer) / (stage >= 1 ? N : 1)};
  const double grown = has_no_buckets(plan.strategy) ? all : 0;
  double state = need.parameters + need.gradients + need.optimizer - grown;
  // Buckets of zero2 and units of zero3 are whole: at most two are reduced while one is filled.
  if (stage >= 2) {
    const double largest = std::max(plan.bucket_mb * 1e6, x.down),
                 unit = stage == 3 ? block : std::min(largest, blocks * block),
                 edge = std::max(unit, part.embedding || part.head ? x.vocabulary : 0);
    need.parameters += stage == 3 ? unit + edge : 0, need.gradients += 2 * (unit + edge);
    state += edge + (stage == 3 ? 4 : 2) * unit;
  }

  const double most = most_in_flight(schedule)[std::size_t(pipeline_rank)];
  Peak peak{x,
            plan.options.recompute,
            part,
            blocks / stages,
            part.head ? (stages == 1 ? most : 1) : 0,
            part.head && stages == 1 ? 0 : x.input};
  peak.note_in_flight(most, 0, grown > 0 ? block : 0);
  if (grown > 0 && schedule.micro_batches > 1)
    peak.note_in_flight(std::min(most, (schedule.micro_batches - 1) * stages), grown, 0);
  need.activations = peak.activations;
  // The model is whole before zero3 shards it.
  need.peak = std::max(state + peak.all, stage == 3 ? all : 0);
  return need;
}

MemoryNeed memory_of_largest_rank(const Plan& plan, int data_ranks) {
  MemoryNeed largest;
  const int ranks = plan.mesh.shape.size(Axis::pp);
  for (int rank = 0; rank < ranks; ++rank)
    largest =
        std::ranges::max(largest, memory_of_rank(plan, data_ranks, rank), {}, &MemoryNeed::peak);
  return largest;
}

MemoryNeed memory_to_evaluate(const Config& config, autograd::DType dtype, std::int64_t sequences,
                              std::int64_t length, bool gradients, double kept_logits,
                              autograd::Device device) {
  Plan plan;
  plan.config = config, plan.dtype = dtype, plan.device = device, plan.strategy = "single";
  plan.options = {.batch = sequences, .sequence = length, .optimizer = OptimizerKind::sgd};
  const auto V = double(config.vocabulary);
  if (!gradients)
    return without_history(
        plan, (double(autograd::cross_entropy_rows(length, config.vocabulary)) + kept_logits) * V);
  plan.options.batch *= 2, plan.options.accumulate = 2;  // the second finds gradients of the first
  MemoryNeed need = memory_of_rank(plan, 1, 0);
  need.activations += double(size_of(dtype)) * kept_logits * V;
  need.peak += double(size_of(dtype)) * kept_logits * V;
  return need;
}

MemoryNeed memory_to_generate(const Config& config, autograd::DType dtype, std::int64_t tokens) {
  Plan plan;
  plan.config = config, plan.dtype = dtype;
  plan.options = {.batch = 1, .sequence = std::min(tokens, config.sequence)};
  const double cache =
      2 * double(config.layers * config.sequence) * double(config.kv_heads * config.head_size());
  return without_history(plan, cache + double(config.vocabulary));
}

double checkpoint_bytes(const Config& config, autograd::DType dtype, OptimizerKind optimizer) {
  return double(parameter_count(config)) *
         (double(size_of(dtype)) + optimizer_bytes(dtype, optimizer));
}

}  // namespace ringside::training
