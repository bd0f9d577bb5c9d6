#include "training/memory_need.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/ops/ops.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::training {
namespace {

using parallel::Axis;
using transformer::Config;

// Of an element of the parameters: AdamW's two moments, at least in fp32, and an fp32 master of
// bf16.
double optimizer_bytes(autograd::DType dtype, OptimizerKind kind) {
  const auto e = static_cast<double>(size_of(dtype));
  return (e < 4 ? 4 : 0) + (kind == OptimizerKind::adamw ? 2 * std::max(4.0, e) : 0);
}

// Whether gradients have memory of their own, which backward allocates and the step frees.
bool has_no_buckets(const std::string& strategy) {
  return strategy == "single" || strategy == "naive" || strategy == "overlap" || strategy == "flat";
}

// The elements of the parameters that a rank holds.
struct Held {
  double all = 0, block = 0, largest = 0;  // the last one: of the largest matrix
};

// All blocks are alike, and there may be more than a table can list.
Held held_by(const transformer::ModelPart& part, double blocks, Config config) {
  config.layers = 1;
  const transformer::ParameterTable table(config);
  Held held;
  for (const transformer::ParameterEntry& entry : table.entries()) {
    if (!name_in(part, entry)) continue;
    const auto elements =
        static_cast<double>(entry.region(part.tensor_rank, part.tensor_ranks).elements());
    (entry.layer == 0 ? held.block : held.all) += elements;
    held.largest = std::max(held.largest, elements);
  }
  held.all += blocks * held.block;
  return held;
}

double elements_of(const Config& config) {
  return held_by({}, static_cast<double>(config.layers), config).all;
}

// A model's table of cosines and sines: config.json says for how many positions.
double rope_bytes(const Plan& plan) {
  return static_cast<double>(size_of(autograd::compute_dtype(plan.dtype))) *
         static_cast<double>(plan.config.sequence) * static_cast<double>(plan.config.head_size());
}

// Bytes of activations on a rank, for one micro-batch, counted op by op on transformer/layers.cpp.
struct Activations {
  Activations(const Plan& plan, const MeshPlan& mesh);

  double kept(double blocks) const;   // from forward to backward
  double again(double blocks) const;  // in backward, of a group that it computes again
  double in_backward(bool is_last_stage, bool only_input, bool adds) const;

  transformer::RecomputeGroups groups;
  double block = 0, input = 0;      // all that backward needs of a block; its input alone
  double deferred = 0;              // what W needs of a block after I
  double forward = 0;               // while forward is in a block
  double down = 0, vocabulary = 0;  // gradients of these matrices: down projections of a block
  double head = 0, kept_head = 0;   // while forward is at the head; from then to backward
  double embedding = 0;             // while backward is at the embedding
  // A number of each token: in a block; where sequence parallel divides it; inside the feed-forward
  // part; in the copies for experts.
  double whole = 0, stream = 0, inside = 0, rows = 0;
};

// Kept for each token: the block's input and the sum before the second norm, both in the residual
// stream; both normed inputs; q, k, v and the output of attention; gate, up and their product; one
// number per head and per norm. With experts: K rows for them and K outputs, and the router's
// logits. With norms of heads: q and k before them, and a number per head. With all_gather of cp:
// the keys and values of all ranks.
//
// The head computes some rows of logits at a time, and the gradient of its matrix with them. The
// CPU converts bf16 to fp32 meanwhile; a device does not, but its logits are fp32.
Activations::Activations(const Plan& plan, const MeshPlan& mesh) : groups(plan.options.recompute) {
  const Config& c = plan.config;
  const auto number = [](auto integer) { return static_cast<double>(integer); };
  const std::int64_t shares =
                         std::max<std::int64_t>(1, mesh.data_ranks() * plan.options.accumulate),
                     tokens = (plan.options.batch + shares - 1) / shares *
                              (plan.options.sequence / mesh.shape.size(Axis::cp));
  const double t = mesh.shape.size(Axis::tp), e = number(size_of(plan.dtype)),
               T = e * number(tokens), d = number(c.head_size()), h = number(c.d_model),
               s = mesh.sequence_parallel ? h / t : h, q = number(c.heads) * d / t,
               kv = std::max(number(c.kv_heads) / t, 1.0) * d, E = number(c.experts),
               K = c.experts > 0 ? number(c.experts_per_token) : 1, f = K * number(c.d_ff) / t,
               matrix = h * number(c.vocabulary) / t,
               logits = number(autograd::cross_entropy_rows(tokens, c.vocabulary, plan.device)) *
                        number(c.vocabulary) / t;
  const bool gathers = mesh.context.exchange == context_parallel::Exchange::all_gather;
  whole = T * h, stream = input = T * s, inside = T * f, rows = c.experts > 0 ? 2 * K * T * h : 0;
  block = 2 * whole + 2 * stream + rows + 3 * inside + (c.experts > 0 ? T / e * 20 * K : 0) +
          T * (2 + 2 * q + 2 * kv * (gathers ? mesh.shape.size(Axis::cp) : 1) +
               number(c.heads) / t + E + (c.qk_norm ? (q + kv) * (1 + 1 / d) : 0));
  deferred = 4 * whole + 3 * inside + T * (2 * q + 2 * kv);
  forward = groups.blocks > 0 ? 3 * whole + rows + 3 * inside : whole;
  down = e * h * number(c.d_ff) / t * (c.experts > 0 ? E / mesh.shape.size(Axis::ep) : 1);
  vocabulary = e * matrix;
  head = e * (logits + matrix) + 3 * whole;
  if (plan.dtype == autograd::DType::bf16)
    head += plan.device == autograd::Device::cpu ? 6 * matrix + 2 * logits : 4 * (matrix + logits);
  kept_head = vocabulary + whole + stream;
  embedding = vocabulary + 3 * whole;
}

double Activations::kept(double blocks) const {
  const auto group = static_cast<double>(groups.blocks);
  return group == 0 ? blocks * block : std::ceil(blocks / group) * input;
}

double Activations::again(double blocks) const {
  const double group = std::min(blocks, static_cast<double>(groups.blocks));
  if (groups.inner == 0) return group * block;
  const double inner = std::min(group, static_cast<double>(groups.inner));
  return inner * block + group / inner * input;
}

// The gradient of the block's output and, at the down projection, that of its input, and of its
// matrix if that `adds` to another; at gate and up theirs, with what W needs; at the normed input
// one by gate and one by up. Sequence parallel gathers the first for the down projection. A
// pipeline also has the gradient that the next stage sent.
double Activations::in_backward(bool is_last_stage, bool only_input, bool adds) const {
  const double gathered = stream < whole ? stream + whole : whole;
  const double at_down = gathered + rows + inside + (adds ? down : 0),
               at_gates = only_input ? gathered + rows + 3 * inside : stream + rows + 2 * inside;
  return std::max({at_down, at_gates, 2 * whole + stream}) + (is_last_stage ? 0 : input);
}

double blocks_of_stage(const Config& config, const pipeline_parallel::Schedule& schedule,
                       int stage) {
  return static_cast<double>(
      pipeline_parallel::layers_of_stage(config.layers, schedule.stages(), stage).count());
}

// What else a step has on a rank, in bytes.
struct Beside {
  bool grows = false;                  // backward makes the gradients: they have no buffer
  double block = 0;                    // the gradients of a block
  double unit = 0, gathered_head = 0;  // parameters that zero3 gathers: of a block, of the head
  double bucket = 0, edge = 0;  // gradients under way: of a bucket, of the vocabulary's matrix
};

// Follows the actions of a rank through a step, and notes the most that it holds. At most two
// buckets are reduced while one is filled, also those of the micro-batch before.
class Step {
 public:
  Step(const Config& config, const MeshPlan& mesh, const Activations& x, const Beside& beside)
      : config_(config),
        schedule_(mesh.schedule),
        x_(x),
        beside_(beside),
        waits_(beside.grows ? 0 : x.vocabulary),
        has_gradients_(mesh.schedule.rank_of.size()) {}

  void run(int rank);
  double activations() const { return activations_; }
  double all() const { return all_; }  // with gradients that grow, and what is under way

 private:
  void forward(double blocks);
  void backward(pipeline_parallel::Kind kind, double blocks, bool makes);
  void note(double working, double under_way) {
    activations_ = std::max(activations_, kept_ + working);
    all_ = std::max(all_, kept_ + working + made_ + of_head_ + of_embedding_ + under_way);
  }

  const Config& config_;
  const pipeline_parallel::Schedule& schedule_;
  const Activations& x_;
  const Beside& beside_;
  // Where gradients are reduced, those of head and embedding wait from I for W.
  const double waits_;
  std::vector<bool> has_gradients_;                              // [stage]
  bool is_first_ = false, is_last_ = false;                      // the stage of the action
  double kept_ = 0, made_ = 0, of_head_ = 0, of_embedding_ = 0;  // activations; gradients
  double earlier_ = 0;  // under way of the micro-batch before
  double activations_ = 0, all_ = 0;
};

void Step::run(int rank) {
  using pipeline_parallel::Kind;
  for (const auto& action : schedule_.actions[static_cast<std::size_t>(rank)]) {
    if (!is_computation(action.kind)) continue;
    const auto stage = static_cast<std::size_t>(action.stage);
    is_first_ = action.stage == 0, is_last_ = action.stage + 1 == schedule_.stages();
    const double blocks = blocks_of_stage(config_, schedule_, action.stage);
    if (action.kind == Kind::forward) {
      forward(blocks);
      continue;
    }
    const bool has_weights = action.kind != Kind::backward_input;  // B or W
    backward(action.kind, blocks, beside_.grows && has_weights && !has_gradients_[stage]);
    if (has_weights) has_gradients_[stage] = true, earlier_ = beside_.edge + beside_.bucket;
  }
}

void Step::forward(double blocks) {
  kept_ += x_.kept(blocks);
  note(is_last_ ? x_.head : x_.forward,
       earlier_ + (is_last_ ? beside_.gathered_head : beside_.unit));
  if (is_last_) kept_ += x_.kept_head;
}

// `makes`: the first gradients of a stage, which are not added to others.
void Step::backward(pipeline_parallel::Kind kind, double blocks, bool makes) {
  const bool is_input = kind == pipeline_parallel::Kind::backward_input,
             is_weight = kind == pipeline_parallel::Kind::backward_weight;
  if (is_last_ && !is_weight) {
    kept_ += (is_input ? waits_ : 0) - x_.kept_head;
    of_head_ = beside_.grows ? x_.vocabulary : 0;
  }
  const double bucket = beside_.bucket, deferred = blocks * x_.deferred,
               freed = is_weight ? deferred : x_.kept(blocks) - (is_input ? deferred : 0),
               gradients = makes ? blocks * beside_.block : 0, added = makes ? x_.down : 0,
               edge = earlier_ > 0 ? beside_.edge : 0,
               reduced_first = (is_last_ && bucket > 0 ? x_.vocabulary : edge) +
                               (earlier_ > 0 ? 2 : 1) * bucket,
               reduced_last = (beside_.unit > 0 ? std::min(3.0, blocks) : 3) * bucket,
               group = std::clamp(static_cast<double>(x_.groups.blocks), 1.0, blocks);
  // In the first block that backward enters, in the last group that it computes again, and in its
  // last block: between them all changes evenly.
  for (const double left : {blocks, group, 1.0}) {
    const double done = 1 - left / blocks,
                 working = is_weight ? x_.down - added
                                     : x_.in_backward(is_last_, is_input, !is_input && !makes) +
                                           x_.again(left),
                 units = left == blocks && blocks > 1 && !is_weight ? 2 : 1,
                 reduced = is_input         ? earlier_
                           : left == blocks ? reduced_first
                                            : reduced_last;
    note(working - done * freed, added + done * gradients + reduced + units * beside_.unit);
  }
  kept_ -= freed, made_ += gradients;
  if (is_weight) {
    kept_ -= (is_first_ + is_last_) * waits_;
  } else if (is_first_) {
    note(x_.embedding, bucket > 0 ? x_.vocabulary + 2 * bucket : 0);
    if (beside_.grows && !(is_last_ && config_.tied_head)) of_embedding_ = x_.vocabulary;
    if (is_input) kept_ += waits_;
  }
}

// Forward without history keeps less than a block, and so many numbers at its end.
MemoryNeed without_history(const Plan& plan, double numbers) {
  const auto e = static_cast<double>(size_of(plan.dtype));
  MemoryNeed need{.parameters = e * elements_of(plan.config),
                  .activations = Activations(plan, {}).block + e * numbers};
  need.peak = need.parameters + need.activations + rope_bytes(plan);
  return need;
}

}  // namespace

double gradient_copies(const std::string& strategy, autograd::DType dtype, double ranks) {
  if (is_strategy_library(strategy)) return 1;
  if (strategy == "bf16_wire")  // errors, those of this rank's block, and two buffers of bf16
    return 2 + 1 / ranks + 2 * 2 / static_cast<double>(size_of(dtype));
  if (strategy.starts_with("diloco")) return 4;  // the mean of the replicas, theta and v
  const bool has_second = strategy == "flat" || strategy.starts_with("powersgd") ||  // errors
                          strategy.starts_with("local_sgd");  // the mean of the replicas
  return has_second ? 2 : 1;
}

MemoryNeed memory_of_rank(const Plan& plan, int data_ranks, int pipeline_rank) {
  MeshPlan mesh = plan.mesh;
  if (!mesh.given()) mesh.shape = mesh.shape.with(Axis::dp, data_ranks);
  if (mesh.schedule.stages() == 0)
    mesh.schedule = pipeline_parallel::make_schedule(
        "1f1b", 1, static_cast<int>(std::min<std::int64_t>(2, plan.options.accumulate)));
  const std::vector<int>& rank_of = mesh.schedule.rank_of;
  transformer::ModelPart part;
  part.tensor_ranks = mesh.shape.size(Axis::tp), part.expert_ranks = mesh.shape.size(Axis::ep);
  part.embedding = rank_of.front() == pipeline_rank, part.head = rank_of.back() == pipeline_rank;
  double blocks = 0;
  for (const int each : stages_of(mesh.schedule, pipeline_rank))
    blocks += blocks_of_stage(plan.config, mesh.schedule, each);
  const Held held = held_by(part, blocks, plan.config);
  const Activations x(plan, mesh);
  const Axis along = mesh.shape.size(Axis::fsdp) > 1 ? Axis::fsdp : Axis::dp;
  const double e = static_cast<double>(size_of(plan.dtype)), all = e * held.all,
               N = mesh.shape.size(along) * mesh.shape.size(Axis::cp),
               copies = gradient_copies(plan.strategy, plan.dtype, N);
  const bool shards =
      plan.strategy.starts_with("zero") && N > 1 && !is_strategy_library(plan.strategy);
  const int stage = shards ? plan.strategy[4] - '0' : 0;

  MemoryNeed need{.parameters = stage == 3 ? all / N : all,
                  .gradients = stage >= 2 ? all / N : copies * all,
                  .optimizer = held.all * optimizer_bytes(plan.dtype, plan.options.optimizer) /
                               (stage >= 1 ? N : 1)};
  Beside beside{.grows = has_no_buckets(plan.strategy), .block = e * held.block};
  const double state =
      need.parameters + need.optimizer + (beside.grows ? (copies - 1) * all : need.gradients);
  const bool has_edge = part.embedding || part.head;
  if (stage == 2) {
    const double limit = plan.bucket_mb * 1e6, largest = e * held.largest;
    beside.bucket = std::min(std::max(limit, x.down), blocks * beside.block);
    need.gradients += largest + std::min(std::max(limit, largest) + 2 * limit, all);
  } else if (stage == 3) {
    beside.unit = beside.bucket = beside.block, beside.gathered_head = x.vocabulary;
    const double two = beside.block + std::max(beside.block, has_edge ? x.vocabulary : 0);
    need.parameters += two, need.gradients += 2 * two;
  }
  if (stage >= 2) beside.edge = std::max(beside.bucket, has_edge ? x.vocabulary : 0);
  Step step(plan.config, mesh, x, beside);
  step.run(pipeline_rank);
  need.activations = step.activations();
  const double sum = need.parameters + need.gradients + need.optimizer + need.activations;
  // The model is whole before zero3 shards it.
  need.peak = std::max(std::min(state + step.all(), sum), stage == 3 ? all : 0) + rope_bytes(plan);
  return need;
}

MemoryNeed memory_of_largest_rank(const Plan& plan, int data_ranks) {
  MemoryNeed largest;
  const int ranks = plan.mesh.shape.size(Axis::pp);
  for (int rank = 0; rank < ranks; ++rank)
    if (const auto need = memory_of_rank(plan, data_ranks, rank); need.peak > largest.peak)
      largest = need;
  return largest;
}

MemoryNeed memory_to_evaluate(const Config& config, autograd::DType dtype, std::int64_t sequences,
                              std::int64_t length, bool gradients, double kept_logits,
                              autograd::Device device) {
  Plan plan;
  plan.config = config, plan.dtype = dtype, plan.device = device, plan.strategy = "single";
  plan.options = {.batch = sequences, .sequence = length, .optimizer = OptimizerKind::sgd};
  const auto vocabulary = static_cast<double>(config.vocabulary);
  if (!gradients) {
    const auto rows = static_cast<double>(autograd::cross_entropy_rows(length, config.vocabulary));
    return without_history(plan, (rows + kept_logits) * vocabulary);
  }
  plan.options.batch *= 2, plan.options.accumulate = 2;  // the second finds gradients of the first
  MemoryNeed need = memory_of_rank(plan, 1, 0);
  const double logits = static_cast<double>(size_of(dtype)) * kept_logits * vocabulary;
  need.activations += logits, need.peak += logits;
  return need;
}

MemoryNeed memory_to_generate(const Config& config, autograd::DType dtype, std::int64_t tokens) {
  Plan plan;
  plan.config = config, plan.dtype = dtype;
  plan.options = {.batch = 1, .sequence = std::min(tokens, config.sequence)};
  const double cache = 2 * static_cast<double>(config.layers) *
                       static_cast<double>(config.kv_heads * config.head_size()) *
                       static_cast<double>(config.sequence);
  return without_history(plan, cache + static_cast<double>(config.vocabulary));
}

double checkpoint_bytes(const Config& config, autograd::DType dtype, OptimizerKind optimizer) {
  return elements_of(config) *
         (static_cast<double>(size_of(dtype)) + optimizer_bytes(dtype, optimizer));
}

}  // namespace ringside::training
