#include "training/mesh/mesh_strategy.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/optim/clip.hpp"
#include "collectives/execution/traffic.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"
#include "training/mesh/mesh_model_ranks.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::training {

using autograd::NamedTensor;
using autograd::Optimizer;
using autograd::Tensor;
using collectives::ProcessGroup;
using collectives::ReduceOp;
using parallel::Axis;
using transformer::ParameterEntry;

namespace {

// The matrices whose parts may have other shapes on other tensor ranks, or stand alone on a stage.
ddp::Alone vocabulary_matrices(const MeshPlan& plan) {
  if (!plan.divides_model()) return {};
  return {{transformer::embedding_name, transformer::head_name}};
}

std::vector<transformer::ModelPart> parts_of_model(const MeshPlan& plan,
                                                   const transformer::Config& config, int rank) {
  std::vector<transformer::ModelPart> parts;
  for (const int member : plan.shape.model_members(rank))
    parts.push_back(part_of_rank(plan, config, member));
  return parts;
}

}  // namespace

MeshStrategy::MeshStrategy(ProcessGroup& world, const MeshPlan& plan,
                           const transformer::Config& config, const std::string& inner,
                           double bucket_mb)
    : plan_(plan),
      mesh_(world, plan.shape),
      inner_group_(mesh_.group(gradient_axes(plan.shape).inner)),
      copies_(mesh_.group(gradient_axes(plan.shape).copies)),
      table_(config),
      parts_(parts_of_model(plan, config, world.rank())),
      part_(part_of_rank(plan, config, world.rank())),
      model_ranks_(std::make_unique<MeshModelRanks>(
          mesh_.group(Axis::tp), plan.sequence_parallel, mesh_.group(Axis::cp), plan.context,
          mesh_.group(Axis::ep), find_tensor_functions(plan.tensor_library))),
      inner_(make_strategy(inner, inner_group_, bucket_mb, vocabulary_matrices(plan))) {
  const int tensor_ranks = mesh_.size(Axis::tp);
  const int kv_copies = table_.entry("model.layers.0.self_attn.k_proj.weight").copies(tensor_ranks);
  if (kv_copies > 1) kv_copies_ = mesh_.group(Axis::tp).split(part_.tensor_rank / kv_copies);
  // With the embedding and the head on one rank there is one matrix, and no copy.
  const bool is_copied = config.tied_head && !(parts_[0].embedding && parts_[0].head);
  if (is_copied) tied_copies_ = mesh_.group(Axis::pp).split(part_.embedding || part_.head ? 0 : 1);
  if (mesh_.size(Axis::pp) > 1)
    pipeline_ = std::make_unique<PipelineRun>(mesh_, plan_, [this] { return inner_->no_sync(); });
}

MeshStrategy::~MeshStrategy() = default;

std::vector<transformer::TokenRange> MeshStrategy::tokens_of(std::int64_t length) const {
  const int ranks = mesh_.size(Axis::cp);
  if (ranks == 1) return {{0, length}};
  const std::int64_t each = length / context_parallel::piece_count(plan_.context.order, ranks);
  std::vector<transformer::TokenRange> tokens;
  for (const int piece :
       context_parallel::pieces_of(plan_.context.order, ranks, mesh_.coordinate(Axis::cp)))
    tokens.push_back({piece * each, each});
  return tokens;
}

// Every rank gets the parameters of rank 0: first along the copies, then in the inner group.
void MeshStrategy::prepare(autograd::Module& model) {
  for (const auto& [name, tensor] : model.named_parameters())
    require(tensor.requires_grad(), "{} is frozen, but a mesh trains all parameters", name);
  if (copies_.size() > 1) ddp::replicate(model, copies_);
  inner_->prepare(model);
}

// --- Forward and backward

double MeshStrategy::run_batches(const transformer::Model& model,
                                 std::span<const transformer::Batch> micro_batches) {
  return pipeline_ ? pipeline_->train(model, micro_batches)
                   : ParallelStrategy::run_batches(model, micro_batches);
}

double MeshStrategy::loss_of(const transformer::Model& model, const transformer::Batch& batch) {
  return pipeline_ ? pipeline_->evaluate(model, batch) : ParallelStrategy::loss_of(model, batch);
}

// --- Gradients

std::unique_ptr<Optimizer> MeshStrategy::make_optimizer(
    std::vector<autograd::ParameterGroup> groups, const MakeOptimizer& make) {
  std::unique_ptr<Optimizer> optimizer = inner_->make_optimizer(std::move(groups), make);
  GradientSum norms{mesh_.group(Axis::tp), "gradients of norms", {}};
  std::vector<Tensor> all, shared, shared_heads, tied;
  experts_.clear();
  for (const auto& [name, tensor] : inner_->local_parameters(*optimizer).tensors) {
    const ParameterEntry& entry = table_.entry(name);
    all.push_back(tensor);
    (entry.is_expert() ? experts_ : shared).push_back(tensor);
    const bool is_part =
        model_ranks_->divides_sequence() || (entry.of_heads && model_ranks_->size() > 1);
    if (entry.is_norm() && is_part) norms.parameters.push_back(tensor);
    if (entry.shares_heads(part_.tensor_ranks)) shared_heads.push_back(tensor);
    if (entry.tied) tied.push_back(tensor);
  }
  sums_.clear();
  if (copies_.size() > 1)
    sums_.push_back({copies_, "gradients of this shard", std::move(all), ReduceOp::avg});
  if (mesh_.size(Axis::ep) > 1)
    sums_.push_back({mesh_.group(Axis::ep), "gradients of all but the experts", std::move(shared),
                     ReduceOp::avg});
  sums_.push_back(std::move(norms));
  if (kv_copies_)
    sums_.push_back({*kv_copies_, "gradients of shared heads", std::move(shared_heads)});
  if (tied_copies_)
    sums_.push_back({*tied_copies_, "gradient of the tied matrix", std::move(tied)});
  return optimizer;
}

void MeshStrategy::finish_gradients() {
  inner_->finish_gradients();
  for (const GradientSum& sum : sums_) add_gradients(sum);
  // The tokens of all ranks along ep have come to an expert, each with the gradient of the mean
  // over the tokens of its own rank. So the sum over ep is there, where the others have the mean.
  if (const int ranks = mesh_.size(Axis::ep); ranks > 1)
    for (const Tensor& expert : experts_)
      autograd::kernels_of(expert).scale(expert.grad(), 1.0 / ranks, expert.grad());
}

// One all-reduce for all gradients of a kind, end to end in flat memory.
void MeshStrategy::add_gradients(const GradientSum& sum) const {
  if (sum.parameters.empty()) return;
  std::int64_t elements = 0;
  for (const Tensor& parameter : sum.parameters) elements += parameter.elements();
  const autograd::MemoryScope scope(autograd::MemoryKind::communication);
  const Tensor& first = sum.parameters.front();
  const Tensor flat = Tensor::empty({elements}, first.dtype(), first.device());
  const auto for_each_view = [&](auto copy) {
    std::int64_t begin = 0;
    for (const Tensor& parameter : sum.parameters) {
      copy(Tensor::view_of(flat.storage(), begin, parameter.shape(), flat.dtype()),
           parameter.grad());
      begin += parameter.elements();
    }
  };
  for_each_view([](const Tensor& view, const Tensor& gradient) { view.copy_(gradient); });
  sum.group.all_reduce(ddp::buffer_of(flat, sum.label), sum.op, sum.label);
  for_each_view([](const Tensor& view, const Tensor& gradient) { gradient.copy_(view); });
}

double MeshStrategy::gradient_norm(const Optimizer& optimizer) {
  const LocalParameters local = inner_->local_parameters(optimizer);
  // A number for each parameter of the whole model, added up in the order of a single process,
  // where decayed parameters come first: so a pipeline, whose stages hold whole parameters, clips
  // by the same bits.
  std::vector<double> squares(table_.entries().size());
  for (const auto& [name, tensor] : local.tensors) {
    const ParameterEntry& entry = table_.entry(name);
    if (transformer::is_counted(part_, entry))
      squares[static_cast<std::size_t>(&entry - table_.entries().data())] +=
          autograd::grad_norm_squared({&tensor, 1});
  }
  norm_group(local.is_sharded)
      .all_reduce(std::span(squares), ReduceOp::sum, "squares of the gradients");
  double sum = 0;
  for (const bool decayed : {true, false})
    for (std::size_t i = 0; i < squares.size(); ++i)
      if (table_.entries()[i].is_decayed() == decayed) sum += squares[i];
  return std::sqrt(sum);
}

// The ranks that hold every gradient once: those of a model, and with shards of all its shards.
ProcessGroup& MeshStrategy::norm_group(bool is_sharded) {
  if (!is_sharded) return mesh_.model_group();
  if (copies_.size() == 1) return mesh_.world();
  std::vector<Axis> along;
  for (const parallel::AxisEntry& entry : parallel::all_axes())
    if (entry.axis != gradient_axes(plan_.shape).copies) along.push_back(entry.axis);
  return mesh_.group(along);
}

double MeshStrategy::average(double value) {
  value = inner_->average(value);
  for (ProcessGroup* group : {&copies_, &mesh_.group(Axis::ep)})
    if (group->size() > 1)
      group->all_reduce(std::span(&value, 1), ReduceOp::avg, "loss of all ranks");
  return value;
}

bool MeshStrategy::same_everywhere(double integer) {
  double mean = integer;
  mesh_.world().all_reduce(std::span(&mean, 1), ReduceOp::avg, "what all ranks read");
  return mean == integer;
}

// --- Whole tensors

autograd::DType MeshStrategy::dtype_of(const Optimizer& optimizer) const {
  for (const autograd::ParameterGroup& group : optimizer.groups())
    if (!group.parameters.empty()) return group.parameters.front().tensor.dtype();
  return autograd::DType::fp32;
}

// The first ranks of their inner group and of their copies hold everything once. The others only
// help the inner strategy to gather what it shards.
void MeshStrategy::collect(const std::vector<WholeTensor>& order,
                           const std::function<void(const SeeTensor&)>& visit,
                           const SeeTensor& see) const {
  if (inner_group_.rank() != 0 || copies_.rank() != 0) return visit([](const NamedTensor&) {});
  collect_whole(order, parts_, mesh_.model_group(), visit, see);
}

void MeshStrategy::visit_parameters(const autograd::Module& model, const SeeTensor& see) const {
  const autograd::DType dtype = model.named_parameters().front().tensor.dtype();
  collect(
      whole_parameters(table_, dtype),
      [&](const SeeTensor& mine) { inner_->visit_parameters(model, mine); }, see);
}

void MeshStrategy::visit_gradients(const autograd::Module& model, const SeeTensor& see) const {
  const autograd::DType dtype = model.named_parameters().front().tensor.dtype();
  collect(
      whole_parameters(table_, dtype),
      [&](const SeeTensor& mine) { inner_->visit_gradients(model, mine); }, see);
}

void MeshStrategy::visit_state(const Optimizer& optimizer, const SeeTensor& see) const {
  collect(
      whole_state(table_, optimizer, dtype_of(optimizer)),
      [&](const SeeTensor& mine) { inner_->visit_state(optimizer, mine); }, see);
}

void MeshStrategy::fill_state(Optimizer& optimizer, const SeeTensor& fill) const {
  fill_from_whole(
      whole_state(table_, optimizer, dtype_of(optimizer)), part_,
      [&](const SeeTensor& keep) { inner_->fill_state(optimizer, keep); }, fill);
}

// --- All groups

std::vector<SecondsAlong> MeshStrategy::communication_by_axis() const {
  const auto blocked = [](const ProcessGroup& group) { return group.times().blocked; };
  const auto of_copies = [&](const auto& group) { return group ? blocked(*group) : 0; };
  double everywhere = 0;
  for (const ProcessGroup* group : mesh_.groups()) everywhere += blocked(*group);
  std::vector<SecondsAlong> all;
  const auto outermost_first = parallel::all_axes();
  for (auto entry = outermost_first.rbegin(); entry != outermost_first.rend(); ++entry) {
    const Axis axis = entry->axis;
    const ProcessGroup& group = mesh_.group(axis);
    double seconds = blocked(group);
    // What the inner strategy averages over dp or fsdp and cp together counts for the first.
    const bool also_inner = axis == gradient_axes(plan_.shape).inner.front() &&
                            &group != &inner_group_ && mesh_.size(axis) > 1;
    if (also_inner) seconds += blocked(inner_group_);
    everywhere -= seconds;
    if (axis == Axis::tp) seconds += of_copies(kv_copies_);
    if (axis == Axis::pp)
      seconds += of_copies(tied_copies_) + (pipeline_ ? pipeline_->messages().times().blocked : 0);
    all.emplace_back(entry->name, seconds);
  }
  all.emplace_back("all ranks", everywhere);
  return all;
}

std::map<Axis, std::uint64_t> MeshStrategy::bytes_sent_by_axis() const {
  const auto sent = [](const auto& group) { return group.traffic().payload_bytes_sent; };
  std::map<Axis, std::uint64_t> bytes;
  for (const parallel::AxisEntry& entry : parallel::all_axes()) {
    const ProcessGroup& group = mesh_.group(entry.axis);
    bytes[entry.axis] = group.size() > 1 ? sent(group) : 0;
    const bool also_inner = entry.axis == gradient_axes(plan_.shape).inner.front() &&
                            &group != &inner_group_ && group.size() > 1;
    if (also_inner) bytes[entry.axis] += sent(inner_group_);
  }
  if (kv_copies_) bytes[Axis::tp] += sent(*kv_copies_);
  if (tied_copies_) bytes[Axis::pp] += sent(*tied_copies_);
  if (pipeline_) bytes[Axis::pp] += pipeline_->messages().traffic().payload_bytes_sent;
  return bytes;
}

double MeshStrategy::communication_seconds() const {
  double all = 0;
  for (const auto& [axis, seconds] : communication_by_axis()) all += seconds;
  return all;
}

// Ranks count from 0 in each group, so the cause is preceded by this rank's place in the world.
void MeshStrategy::give_up(const std::string& cause) noexcept {
  const int rank = mesh_.world().rank();
  const std::string told =
      fmt::format("rank {} ({}) gave up: {}", rank, mesh_.describe(rank), cause);
  for (ProcessGroup* group : mesh_.groups()) group->abort(told);
  for (auto* copies : {&kv_copies_, &tied_copies_})
    if (*copies) (*copies)->abort(told);
}

}  // namespace ringside::training
