#include "zero/optimizer.hpp"

#include <algorithm>
#include <numeric>

#include "ddp/replicate.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::ParameterGroup;

ShardedOptimizer::ShardedOptimizer(std::vector<ParameterGroup> groups, collectives::ProcessGroup& group, Make make)
    : Optimizer(std::move(groups), {}, false), group_(group), make_(std::move(make)), load_(static_cast<std::size_t>(group.size())) {
  for (const ParameterGroup& each : this->groups()) share_out(each);
}

void ShardedOptimizer::add_group(ParameterGroup group) {
  Optimizer::add_group(std::move(group));
  share_out(groups().back());
}

// The largest parameter first, each to the rank that has least: so that no rank keeps much more than 1/p.
void ShardedOptimizer::share_out(const ParameterGroup& added) {
  const auto& parameters = added.parameters;
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return parameters[a].tensor.elements() > parameters[b].tensor.elements(); });
  std::vector<int>& owners = owners_.emplace_back(parameters.size());
  for (const std::size_t i : order) {
    const auto least = std::min_element(load_.begin(), load_.end());
    owners[i] = static_cast<int>(least - load_.begin());
    *least += parameters[i].tensor.elements();
  }

  ParameterGroup mine = added;
  mine.parameters.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (owners[i] == group_.rank()) mine.parameters.push_back(parameters[i]);
  if (share_) return share_->add_group(std::move(mine));
  if (mine.parameters.empty()) return;
  std::vector<ParameterGroup> shares(owners_.size() - 1);  // of the groups before, of which this rank has nothing
  shares.push_back(std::move(mine));
  share_ = make_(std::move(shares));
}

void ShardedOptimizer::step() {
  if (share_) {
    for (std::size_t g = 0; g < groups().size(); ++g) {
      share_->groups()[g].learning_rate = groups()[g].learning_rate;
      share_->groups()[g].weight_decay = groups()[g].weight_decay;
    }
    share_->set_gradient_scale(gradient_scale());
    share_->step();
  }
  for (std::size_t g = 0; g < groups().size(); ++g)
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const auto& [name, parameter] = groups()[g].parameters[i];
      ddp::broadcast(parameter, owner(g, i), group_, name);
    }
  set_gradient_scale(1);
}

std::vector<NamedTensor> ShardedOptimizer::state() const { return share_ ? share_->state() : std::vector<NamedTensor>{}; }

}  // namespace ringside::zero
