#include "zero/zero1_broadcast.hpp"

#include <algorithm>
#include <numeric>

#include "ddp/tensor_collectives.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::ParameterGroup;

Zero1Broadcast::Zero1Broadcast(std::vector<ParameterGroup> groups, collectives::ProcessGroup& group,
                               Make make)
    : ShardedOptimizer(std::move(groups), group, std::move(make)),
      owned_elements_(static_cast<std::size_t>(group.size())) {
  add_shards_of_all_groups();
}

void Zero1Broadcast::step() {
  step_shards();
  for (std::size_t g = 0; g < groups().size(); ++g)
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const auto& [name, parameter] = groups()[g].parameters[i];
      ddp::broadcast(parameter, owner(g, i), group_, name);
    }
}

// The largest parameter first, each to the rank that owns the fewest elements so far: a parameter
// is not divided, and this keeps the ranks close to 1/p.
std::vector<int> Zero1Broadcast::choose_owners(const ParameterGroup& group) {
  std::vector<std::size_t> order(group.parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return group.parameters[a].tensor.elements() > group.parameters[b].tensor.elements();
  });
  std::vector<int> owners(group.parameters.size());
  for (const std::size_t i : order) {
    const auto fewest = std::min_element(owned_elements_.begin(), owned_elements_.end());
    owners[i] = static_cast<int>(fewest - owned_elements_.begin());
    *fewest += group.parameters[i].tensor.elements();
  }
  return owners;
}

std::vector<NamedTensor> Zero1Broadcast::shards_of(const ParameterGroup& group) {
  owners_.push_back(choose_owners(group));
  std::vector<NamedTensor> mine;
  for (std::size_t i = 0; i < group.parameters.size(); ++i)
    if (owners_.back()[i] == group_.rank()) mine.push_back(group.parameters[i]);
  return mine;
}

std::vector<ShardRange> Zero1Broadcast::ranges(std::size_t g, std::size_t i) const {
  std::vector<ShardRange> all(static_cast<std::size_t>(group_.size()));
  all[static_cast<std::size_t>(owner(g, i))] = {0, groups()[g].parameters[i].tensor.elements()};
  return all;
}

}  // namespace ringside::zero
