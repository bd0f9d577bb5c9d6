#include "zero/sharded_optimizer.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "autograd/optim/clip.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::ParameterGroup;
using autograd::StateEntry;
using autograd::Tensor;

namespace {

// Undefined if there is none of this name.
Tensor find(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& each) { return each.name == name; });
  return found == tensors.end() ? Tensor() : found->tensor;
}

// State that is kept once for a parameter is taken from the first rank that has a shard of it.
std::vector<ShardRange> first_keeper_of(const std::vector<ShardRange>& ranges) {
  std::vector<ShardRange> once(ranges.size());
  for (std::size_t rank = 0; rank < ranges.size(); ++rank) {
    if (ranges[rank].count == 0) continue;
    once[rank] = {0, 1};
    break;
  }
  return once;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(std::vector<ParameterGroup> groups,
                                   collectives::ProcessGroup& group, Make make)
    : Optimizer(std::move(groups), {}, false), group_(group), make_(std::move(make)) {}

void ShardedOptimizer::add_shards_of_all_groups() {
  for (std::size_t g = 0; g < groups().size(); ++g) add_shards(g);
}

void ShardedOptimizer::add_group(ParameterGroup group) {
  Optimizer::add_group(std::move(group));
  add_shards(groups().size() - 1);
}

void ShardedOptimizer::add_shards(std::size_t g) {
  ParameterGroup mine = groups()[g];
  mine.parameters = shards_of(groups()[g]);
  if (local_) return local_->add_group(std::move(mine));
  if (mine.parameters.empty()) return;
  // This rank has nothing of the groups before this one.
  std::vector<ParameterGroup> local_groups(g);
  local_groups.push_back(std::move(mine));
  local_ = make_(std::move(local_groups));
}

void ShardedOptimizer::step_shards() {
  if (local_) {
    for (std::size_t g = 0; g < groups().size(); ++g) {
      local_->groups()[g].learning_rate = groups()[g].learning_rate;
      local_->groups()[g].weight_decay = groups()[g].weight_decay;
    }
    local_->set_gradient_scale(gradient_scale());
    local_->step();
  }
  set_gradient_scale(1);
}

std::vector<NamedTensor> ShardedOptimizer::state() const {
  return local_ ? local_->state() : std::vector<NamedTensor>{};
}

std::vector<NamedTensor> ShardedOptimizer::shards() const {
  std::vector<NamedTensor> all;
  if (local_)
    for (const ParameterGroup& group : local_->groups())
      all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

double ShardedOptimizer::grad_norm_squared() const {
  std::vector<Tensor> mine;
  for (const NamedTensor& shard : shards()) mine.push_back(shard.tensor);
  double squares = autograd::grad_norm_squared(mine);
  group_.all_reduce(std::span(&squares, 1), collectives::ReduceOp::sum, "squares of the gradients");
  return squares;
}

// A rank without shards asks an optimizer of one element.
std::vector<StateEntry> ShardedOptimizer::state_layout(autograd::DType parameter) const {
  if (local_) return local_->state_layout(parameter);
  ParameterGroup group;
  group.parameters.push_back({"", Tensor::zeros({1}, parameter)});
  return make_({group})->state_layout(parameter);
}

void ShardedOptimizer::visit_state(const SeeTensor& see) const {
  const std::vector<NamedTensor> local = state();
  for (std::size_t g = 0; g < groups().size(); ++g) {
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const NamedTensor& parameter = groups()[g].parameters[i];
      for (const StateEntry& entry : state_layout(shard_dtype(g, i))) {
        const std::string name = parameter.name + "." + entry.name;
        const Tensor whole = collect(
            find(local, name), entry.per_element ? ranges(g, i) : first_keeper_of(ranges(g, i)),
            entry.shape_for(parameter.tensor.shape()), entry.dtype, group_, name);
        if (whole.defined()) see({name, whole});
      }
    }
  }
}

void ShardedOptimizer::fill_state(const FillTensor& fill) {
  const std::vector<NamedTensor> local = state();
  for (std::size_t g = 0; g < groups().size(); ++g) {
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const NamedTensor& parameter = groups()[g].parameters[i];
      const ShardRange mine = ranges(g, i)[static_cast<std::size_t>(group_.rank())];
      for (const StateEntry& entry : state_layout(shard_dtype(g, i))) {
        const std::string name = parameter.name + "." + entry.name;
        const Tensor whole = Tensor::empty(entry.shape_for(parameter.tensor.shape()), entry.dtype);
        fill({name, whole});
        const Tensor kept = find(local, name);
        if (!kept.defined()) continue;
        const Tensor range = entry.per_element ? view_of_range(whole, mine) : whole;
        kept.copy_(range.reshape(kept.shape()));
      }
    }
  }
}

}  // namespace ringside::zero
