#include "zero/optimizer.hpp"

#include <algorithm>
#include <numeric>

#include "parallel/replicate.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::ParameterGroup;

ShardedOptimizer::ShardedOptimizer(std::vector<ParameterGroup> groups,
                                   collectives::ProcessGroup& group, Make make)
    : PartitionedOptimizer(std::move(groups), group, std::move(make)),
      load_(static_cast<std::size_t>(group.size())) {
  share_out_all();
}

// The largest parameter first, each to the rank that has least: so that no rank keeps much more
// than 1/p.
std::vector<NamedTensor> ShardedOptimizer::share_of(const ParameterGroup& added) {
  const auto& parameters = added.parameters;
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return parameters[a].tensor.elements() > parameters[b].tensor.elements();
  });
  std::vector<int>& owners = owners_.emplace_back(parameters.size());
  for (const std::size_t i : order) {
    const auto least = std::min_element(load_.begin(), load_.end());
    owners[i] = static_cast<int>(least - load_.begin());
    *least += parameters[i].tensor.elements();
  }

  std::vector<NamedTensor> mine;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (owners[i] == group_.rank()) mine.push_back(parameters[i]);
  return mine;
}

void ShardedOptimizer::step() {
  step_share();
  for (std::size_t g = 0; g < groups().size(); ++g)
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const auto& [name, parameter] = groups()[g].parameters[i];
      ddp::broadcast(parameter, owner(g, i), group_, name);
    }
}

std::vector<Part> ShardedOptimizer::parts(std::size_t g, std::size_t i) const {
  std::vector<Part> all(static_cast<std::size_t>(group_.size()));
  all[static_cast<std::size_t>(owner(g, i))] = {0, groups()[g].parameters[i].tensor.elements()};
  return all;
}

}  // namespace ringside::zero
