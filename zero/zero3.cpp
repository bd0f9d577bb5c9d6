#include "zero/zero3.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/copy.hpp"
#include "base/error.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::zero {

using autograd::Module;
using autograd::NamedModule;
using autograd::NamedTensor;
using autograd::Tensor;

namespace {

using Indices = std::vector<std::size_t>;  // sorted

Indices union_of(const Indices& a, const Indices& b) {
  Indices all;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

Indices difference_of(const Indices& a, const Indices& b) {
  Indices rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

bool contains(const Indices& indices, std::size_t index) {
  return std::binary_search(indices.begin(), indices.end(), index);
}

// One bucket for each unit and dtype, of any size, and one for each parameter in `alone`.
std::vector<ddp::Bucket> buckets_of(const std::vector<Unit>& units, bool trained,
                                    const ddp::Alone& alone) {
  constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  std::vector<ddp::Bucket> all;
  for (const Unit& unit : units)
    for (ddp::Bucket& bucket :
         ddp::plan_buckets(trained ? unit.trained : unit.frozen, no_limit, no_limit, alone))
      all.push_back(std::move(bucket));
  return all;
}

const std::string& unit_of(const NamedTensor& parameter, const std::vector<Unit>& units) {
  for (const Unit& unit : units)
    for (const auto* parameters : {&unit.trained, &unit.frozen})
      for (const NamedTensor& each : *parameters)
        if (each.tensor.is_same(parameter.tensor)) return unit.name;
  fail("the parameter {} is in no unit", parameter.name);
}

}  // namespace

// --- Construction

Zero3::Zero3(Module& module, collectives::ProcessGroup& group,
             const std::vector<NamedModule>& wrapped, const ddp::Alone& alone, bool fp32_shards)
    : Zero3(module, group, wrapped, alone, fp32_shards, divide_into_units(module, wrapped)) {}

Zero3::Zero3(Module& module, collectives::ProcessGroup& group,
             const std::vector<NamedModule>& wrapped, const ddp::Alone& alone, bool fp32_shards,
             const std::vector<Unit>& units)
    : named_(module.named_parameters()),
      group_(group),
      plan_(buckets_of(units, true, alone), group.rank(), group.size(), fp32_shards),
      frozen_(buckets_of(units, false, alone), group.rank(), group.size()) {
  ddp::replicate(module, group);
  add_flats(units, plan_);
  add_flats(units, frozen_);
  std::vector<Tensor> bucket_shards;
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) bucket_shards.push_back(flats_[b].shard);
  shards_ = parameter_shards(plan_, bucket_shards);
  gradients_ = std::make_unique<GradientShards>(plan_, group_, shards_);
  find_uses(module, wrapped);
}

Zero3::~Zero3() {
  for (const Use& use : uses_) {
    use.module->remove_forward_hook(use.pre_hook);
    use.module->remove_forward_hook(use.hook);
  }
}

void Zero3::add_flats(const std::vector<Unit>& units, const ShardLayout& plan) {
  const autograd::MemoryScope parameters(autograd::MemoryKind::parameters);
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const Tensor whole = move_into_flat_memory(plan, b);
    const NamedTensor& first = plan.buckets()[b].entries.front().parameter;
    const Tensor part = plan.shard_of(whole, b);
    const Tensor shard = Tensor::empty(part.shape(), plan.shard_dtype(b), part.device());
    autograd::convert_into(shard, part);
    flats_.push_back({unit_of(first, units), whole, part, shard});
    whole.storage()->drop();
  }
}

Zero3::FlatIndices Zero3::flats_of(const std::vector<NamedTensor>& parameters) const {
  FlatIndices flats;
  for (const NamedTensor& parameter : parameters) {
    const auto trained = plan_.find(parameter.tensor);
    flats.push_back(trained ? trained->bucket
                            : plan_.buckets().size() + frozen_.find(parameter.tensor)->bucket);
  }
  std::sort(flats.begin(), flats.end());
  flats.erase(std::unique(flats.begin(), flats.end()), flats.end());
  return flats;
}

void Zero3::find_uses(Module& module, const std::vector<NamedModule>& wrapped) {
  // The modules with parameters that contain the module at hand, the innermost last.
  std::vector<std::pair<std::string, FlatIndices>> around;
  for (const auto& [name, each] : module.named_modules()) {
    while (!around.empty() && !is_within(name, around.back().first)) around.pop_back();
    const NamedModule* const wrapper = wrapped_around(name, wrapped);
    if (wrapper && wrapper->name != name) continue;  // gathered together with its unit
    const FlatIndices own = flats_of(each->named_parameters(false, wrapper != nullptr));
    if (own.empty()) continue;
    const FlatIndices outer = around.empty() ? FlatIndices{} : around.back().second;
    const FlatIndices needs = union_of(own, outer);
    const std::size_t use = uses_.size();
    uses_.push_back({each, needs, outer});
    uses_[use].pre_hook = each->register_forward_pre_hook([this, use] { enter_forward(use); });
    uses_[use].hook = each->register_forward_hook(
        [this, use](const Tensor& output) { leave_forward(use, output); });
    around.emplace_back(name, needs);
  }
}

// --- A unit is entered and left

void Zero3::enter_forward(std::size_t use) {
  // A forward within backward recomputes a block (autograd/engine/checkpointing.hpp). After it
  // comes the block below.
  const int direction = autograd::in_backward() ? -1 : 1;
  enter(use, uses_[use].needs, direction);
}

void Zero3::leave_forward(std::size_t use, const Tensor& output) {
  if (output.grad_fn()) output.register_hook([this, use](const Tensor&) { enter_backward(use); });
  if (autograd::in_backward()) return;  // recomputed: its backward follows at once
  const bool is_last = use + 1 == uses_.size();
  if (is_last && output.requires_grad()) return;  // backward starts with it
  const FlatIndices stay =
      is_last ? uses_[use].outer : union_of(uses_[use].outer, uses_[use + 1].needs);
  for (const std::size_t f : difference_of(uses_[use].needs, stay)) reshard(flats_[f]);
}

void Zero3::enter_backward(std::size_t use) {
  const bool reads = uses_[use].module->backward_reads_parameters();
  enter(use, reads ? uses_[use].needs : uses_[use].outer, -1);
}

// Frees all parameters but `needs` and those that the next use needs. Waits for `needs`, and starts
// to gather the next ones. `direction` is 1 in forward, -1 in backward.
void Zero3::enter(std::size_t use, const FlatIndices& needs, int direction) {
  const FlatIndices next = needed_next(use, needs, direction);
  for (std::size_t f = 0; f < flats_.size(); ++f)
    if (!contains(needs, f) && !contains(next, f)) reshard(flats_[f]);
  for (const std::size_t f : needs) unshard(flats_[f]);
  for (const std::size_t f : next) start_unshard(flats_[f]);
}

// The parameters that the nearest use in this direction needs, without those in `needs`. Uses that
// need no others are passed over.
Zero3::FlatIndices Zero3::needed_next(std::size_t use, const FlatIndices& needs,
                                      int direction) const {
  const auto end = static_cast<std::ptrdiff_t>(uses_.size());
  for (auto next = static_cast<std::ptrdiff_t>(use) + direction; next >= 0 && next < end;
       next += direction) {
    const Use& other = uses_[static_cast<std::size_t>(next)];
    if (direction < 0 && !other.module->backward_reads_parameters()) continue;
    if (FlatIndices missing = difference_of(other.needs, needs); !missing.empty()) return missing;
  }
  return {};
}

void Zero3::start_unshard(Flat& flat) {
  if (flat.in_memory()) return;
  flat.whole.storage()->restore();
  autograd::convert_into(flat.part, flat.shard);  // rounds before the network
  flat.all_gather.emplace(ddp::all_gather_async(flat.part, flat.whole, group_,
                                                fmt::format("parameters of {}", flat.unit)));
}

void Zero3::unshard(Flat& flat) {
  start_unshard(flat);
  if (flat.all_gather) flat.all_gather->wait();
  flat.all_gather.reset();
}

void Zero3::reshard(Flat& flat) {
  if (flat.all_gather) flat.all_gather->wait();
  flat.all_gather.reset();
  flat.whole.storage()->drop();
}

void Zero3::reshard_all() {
  for (Flat& flat : flats_) reshard(flat);
}

// --- A step

void Zero3::finish() {
  gradients_->finish();
  reshard_all();
}

std::unique_ptr<ShardedOptimizer> Zero3::make_optimizer(
    std::vector<autograd::ParameterGroup> groups, ShardedOptimizer::Make make) {
  // After a forward without backward some units are still gathered, with the numbers from before
  // the step: step() frees them.
  return std::make_unique<FlatShardOptimizer>(std::move(groups), group_, std::move(make), plan_,
                                              shards_, [this] { reshard_all(); });
}

std::vector<std::string> Zero3::in_memory() const {
  std::vector<std::string> names;
  for (const Flat& flat : flats_)
    if (flat.in_memory() && (names.empty() || names.back() != flat.unit))
      names.push_back(flat.unit);
  return names;
}

void Zero3::visit_parameters(const SeeTensor& see) const {
  std::vector<Tensor> frozen_bucket_shards;
  for (std::size_t f = plan_.buckets().size(); f < flats_.size(); ++f)
    frozen_bucket_shards.push_back(flats_[f].shard);
  const ParameterShards frozen_shards = parameter_shards(frozen_, frozen_bucket_shards);
  for (const NamedTensor& parameter : named_) {
    const bool trained = plan_.find(parameter.tensor).has_value();
    zero::visit_parameters({parameter}, trained ? plan_ : frozen_,
                           trained ? shards_ : frozen_shards, group_, see);
  }
}

}  // namespace ringside::zero
