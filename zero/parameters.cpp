#include "zero/parameters.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "autograd/engine/engine.hpp"
#include "base/error.hpp"
#include "parallel/replicate.hpp"

namespace ringside::zero {

using autograd::Module;
using autograd::NamedModule;
using autograd::NamedTensor;
using autograd::Tensor;

namespace {

using Flats = std::vector<std::size_t>;

Flats both(const Flats& a, const Flats& b) {
  Flats all;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

Flats without(const Flats& a, const Flats& b) {
  Flats rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

bool has(const Flats& flats, std::size_t one) {
  return std::binary_search(flats.begin(), flats.end(), one);
}

bool is_within(const std::string& name, const std::string& module) {
  return module.empty() || name == module || name.starts_with(module + ".");
}

const NamedModule* unit_around(const std::string& name, const std::vector<NamedModule>& units) {
  const auto found = std::find_if(units.begin(), units.end(), [&](const NamedModule& unit) {
    return is_within(name, unit.name);
  });
  return found == units.end() ? nullptr : &*found;
}

}  // namespace

std::vector<NamedModule> usual_units(Module& module) {
  std::vector<NamedModule> units;
  for (const NamedModule& each : module.named_modules()) {
    const std::string last = each.name.substr(each.name.rfind('.') + 1);
    const bool is_element =
        !last.empty() && last.find_first_not_of("0123456789") == std::string::npos;
    const bool is_whole = !each.name.empty();
    if (is_whole && (is_element || !each.module->backward_reads_parameters()) &&
        !unit_around(each.name, units))
      units.push_back(each);
  }
  return units;
}

// --- Construction

ShardedParameters::ShardedParameters(Module& module, collectives::ProcessGroup& group,
                                     const std::vector<NamedModule>& units)
    : named_(module.named_parameters()),
      group_(group),
      divided_(divide(module, units)),
      plan_(buckets_of(divided_, true), group.rank(), group.size()),
      frozen_(buckets_of(divided_, false), group.rank(), group.size()) {
  ddp::replicate(module, group);
  add_flats(plan_);
  add_flats(frozen_);
  std::vector<Tensor> shards;
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) shards.push_back(flats_[b].shard);
  slices_ = slices_of(plan_, shards);
  gradients_ = std::make_unique<GradientShards>(plan_, group_, slices_);
  find_uses(module, units);
}

ShardedParameters::~ShardedParameters() {
  for (const Use& use : uses_) {
    use.module->remove_forward_hook(use.pre_hook);
    use.module->remove_forward_hook(use.hook);
  }
}

// Which unit each parameter belongs to: the one unit in which all of its names lie, else the root.
std::vector<ShardedParameters::UnitParameters> ShardedParameters::divide(
    const Module& module, const std::vector<NamedModule>& units) {
  const std::vector<NamedTensor> all = module.named_parameters(true);
  std::vector<UnitParameters> divided;  // in the order of forward, by the first parameter
  const auto unit_named = [&](const std::string& name) -> UnitParameters& {
    const auto found = std::find_if(divided.begin(), divided.end(),
                                    [&](const UnitParameters& unit) { return unit.name == name; });
    return found == divided.end() ? divided.emplace_back(UnitParameters{name, {}, {}}) : *found;
  };
  for (const NamedTensor& parameter : module.named_parameters()) {
    const NamedModule* const around = unit_around(parameter.name, units);
    const bool shared = std::any_of(all.begin(), all.end(), [&](const NamedTensor& other) {
      return other.tensor.is_same(parameter.tensor) && unit_around(other.name, units) != around;
    });
    UnitParameters& unit = unit_named(around && !shared ? around->name : "root");
    (parameter.tensor.requires_grad() ? unit.trained : unit.frozen).push_back(parameter);
  }
  std::reverse(divided.begin(), divided.end());
  return divided;
}

std::vector<ddp::Bucket> ShardedParameters::buckets_of(const std::vector<UnitParameters>& divided,
                                                       bool trained) {
  constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
  std::vector<ddp::Bucket> all;
  for (const UnitParameters& unit : divided)
    for (ddp::Bucket& bucket : ddp::plan_buckets(trained ? unit.trained : unit.frozen, any, any))
      all.push_back(std::move(bucket));
  return all;
}

void ShardedParameters::add_flats(const ShardPlan& plan) {
  const autograd::MemoryScope parameters(autograd::MemoryKind::parameters);
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const Tensor whole = move_into_flat_memory(plan, b);
    const std::string& first = plan.buckets()[b].entries.front().parameter.name;
    const auto unit =
        std::find_if(divided_.begin(), divided_.end(), [&](const UnitParameters& each) {
          const auto is_first = [&](const NamedTensor& parameter) {
            return parameter.name == first;
          };
          return std::any_of(each.trained.begin(), each.trained.end(), is_first) ||
                 std::any_of(each.frozen.begin(), each.frozen.end(), is_first);
        });
    flats_.push_back({&plan, b, unit->name, whole, plan.shard_of(whole, b).clone()});
    whole.storage()->drop();
  }
}

ShardedParameters::Flats ShardedParameters::flats_of(
    const std::vector<NamedTensor>& parameters) const {
  Flats flats;
  for (const NamedTensor& parameter : parameters) {
    const auto trained = plan_.find(parameter.tensor);
    flats.push_back(trained ? trained->bucket
                            : plan_.buckets().size() + frozen_.find(parameter.tensor)->bucket);
  }
  std::sort(flats.begin(), flats.end());
  flats.erase(std::unique(flats.begin(), flats.end()), flats.end());
  return flats;
}

void ShardedParameters::find_uses(Module& module, const std::vector<NamedModule>& units) {
  std::vector<std::pair<std::string, Flats>>
      around;  // modules whose forward may contain that of the next
  for (const auto& [name, each] : module.named_modules()) {
    std::erase_if(
        around, [&, &within = name](const auto& outer) { return !is_within(within, outer.first); });
    const NamedModule* const unit = unit_around(name, units);
    if (unit && unit->name != name) continue;  // comes and goes with its unit
    const Flats own = flats_of(each->named_parameters(false, unit != nullptr));
    if (own.empty()) continue;
    const Flats above = around.empty() ? Flats{} : around.back().second;
    const std::size_t use = uses_.size();
    uses_.push_back({each, both(own, above), above});
    uses_[use].pre_hook = each->register_forward_pre_hook([this, use] { enter_forward(use); });
    uses_[use].hook = each->register_forward_hook(
        [this, use](const Tensor& output) { leave_forward(use, output); });
    around.emplace_back(name, uses_[use].needs);
  }
}

// --- A unit is entered and left

void ShardedParameters::enter_forward(std::size_t use) {
  // Forward within backward computes a block again (autograd/engine/checkpointing.hpp), and the
  // block before it comes next.
  enter(use, uses_[use].needs, autograd::in_backward() ? -1 : 1);
}

void ShardedParameters::leave_forward(std::size_t use, const Tensor& output) {
  if (output.grad_fn()) output.register_hook([this, use](const Tensor&) { enter_backward(use); });
  if (autograd::in_backward()) return;  // its own backward comes at once
  const bool is_last = use + 1 == uses_.size();
  if (is_last && output.requires_grad()) return;
  const Flats stay = is_last ? uses_[use].above : both(uses_[use].above, uses_[use + 1].needs);
  for (const std::size_t f : without(uses_[use].needs, stay)) release(flats_[f]);
}

void ShardedParameters::enter_backward(std::size_t use) {
  enter(use, uses_[use].module->backward_reads_parameters() ? uses_[use].needs : uses_[use].above,
        -1);
}

void ShardedParameters::enter(std::size_t use, const Flats& needs, int direction) {
  const Flats next = needed_next(use, needs, direction);
  for (std::size_t f = 0; f < flats_.size(); ++f)
    if (!has(needs, f) && !has(next, f)) release(flats_[f]);
  for (const std::size_t f : needs) gather_and_wait(flats_[f]);
  for (const std::size_t f : next) gather(flats_[f]);
}

// What the nearest use on the way needs that is not here.
ShardedParameters::Flats ShardedParameters::needed_next(std::size_t use, const Flats& needs,
                                                        int direction) const {
  const auto end = static_cast<std::ptrdiff_t>(uses_.size());
  for (auto next = static_cast<std::ptrdiff_t>(use) + direction; next >= 0 && next < end;
       next += direction) {
    const Use& other = uses_[static_cast<std::size_t>(next)];
    if (direction < 0 && !other.module->backward_reads_parameters()) continue;
    if (Flats missing = without(other.needs, needs); !missing.empty()) return missing;
  }
  return {};
}

void ShardedParameters::gather(Flat& flat) {
  if (flat.in_memory()) return;
  flat.whole.storage()->restore();
  flat.under_way =
      ddp::all_gather_async(flat.shard, flat.whole, group_, "parameters of " + flat.unit);
}

void ShardedParameters::gather_and_wait(Flat& flat) {
  gather(flat);
  if (flat.under_way) flat.under_way->wait();
  flat.under_way.reset();
}

void ShardedParameters::release(Flat& flat) {
  if (flat.under_way) flat.under_way->wait();
  flat.under_way.reset();
  flat.whole.storage()->drop();
}

void ShardedParameters::release_all() {
  for (Flat& flat : flats_) release(flat);
}

// --- A step

void ShardedParameters::finish() {
  gradients_->finish();
  release_all();
}

std::unique_ptr<PartitionedOptimizer> ShardedParameters::make_optimizer(
    std::vector<autograd::ParameterGroup> groups, PartitionedOptimizer::Make make) {
  // What is still gathered (after a forward without backward) shows what was before the step.
  return std::make_unique<SliceOptimizer>(std::move(groups), group_, std::move(make), plan_,
                                          slices_, [this] { release_all(); });
}

std::vector<std::string> ShardedParameters::in_memory() const {
  std::vector<std::string> names;
  for (const Flat& flat : flats_)
    if (flat.in_memory() && (names.empty() || names.back() != flat.unit))
      names.push_back(flat.unit);
  return names;
}

void ShardedParameters::visit_parameters(const SeeTensor& see) const {
  std::vector<Tensor> frozen_shards;
  for (std::size_t f = plan_.buckets().size(); f < flats_.size(); ++f)
    frozen_shards.push_back(flats_[f].shard);
  const Slices frozen_slices = slices_of(frozen_, frozen_shards);
  for (const NamedTensor& parameter : named_) {
    const bool trained = plan_.find(parameter.tensor).has_value();
    zero::visit_parameters({parameter}, trained ? plan_ : frozen_,
                           trained ? slices_ : frozen_slices, group_, see);
  }
}

}  // namespace ringside::zero
