// The stages of ZeRO that cut flat memory evenly, each made in the ways that tests compare; and
// training with them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/collectives/worlds.hpp"
#include "tests/ddp/toy_nets.hpp"
#include "zero/gradients.hpp"
#include "zero/parameters.hpp"
#include "zero/state.hpp"

namespace ringside::tests {

using collectives::ProcessGroup;

// Buckets of 0.5 kB: the toy nets have several.
struct StateInBuckets : zero::ShardedState {
  StateInBuckets(Module& net, ProcessGroup& group) : ShardedState(net, group, 0.5e-3) {}
};
struct GradientsInBuckets : zero::ShardedGradients {
  GradientsInBuckets(Module& net, ProcessGroup& group) : ShardedGradients(net, group, 0.5e-3) {}
};
// Every layer a unit.
struct ParametersByLayer : zero::ShardedParameters {
  ParametersByLayer(Module& net, ProcessGroup& group)
      : ShardedParameters(net, group, layers_of(net)) {}
  static std::vector<NamedModule> layers_of(Module& net) {
    auto modules = net.named_modules();
    modules.erase(modules.begin());
    return modules;
  }
};

using Tensors = std::map<std::string, Tensor>;  // by name

// Gradients (and, after a step, parameters) as a single process would have them; on rank 0, the
// others get none.
template <class Stage>
Tensors whole_state(const Stage& stage) {
  Tensors tensors;
  stage.visit_parameters(
      [&](const NamedTensor& each) { tensors[each.name] = each.tensor.clone(); });
  stage.visit_gradients(
      [&](const NamedTensor& each) { tensors["gradient of " + each.name] = each.tensor.clone(); });
  return tensors;
}

template <class T>
void must_be_equal(const Tensors& seen, const std::vector<NamedTensor>& wanted, double tolerance) {
  std::size_t compared = 0;
  for (const auto& [name, tensor] : wanted) {
    const auto found = seen.find(name);
    require(found != seen.end(), "there is no {}", name);
    require(found->second.shape() == tensor.shape(), "{} has another shape", name);
    const auto a = found->second.template values<T>(), b = tensor.template values<T>();
    for (std::size_t k = 0; k < a.size(); ++k)
      require(std::abs(a[k] - b[k]) <= tolerance, "{}[{}] is {} instead of {}", name, k, a[k],
              b[k]);
    ++compared;
  }
  for (const auto& [name, tensor] : seen)
    require(std::any_of(wanted.begin(), wanted.end(),
                        [&, &n = name](const NamedTensor& each) { return each.name == n; }),
            "{} should not be there", name);
}

inline std::vector<NamedTensor> trained(const Module& net) {
  std::vector<NamedTensor> all;
  for (const auto& parameter : net.named_parameters())
    if (parameter.tensor.requires_grad()) all.push_back(parameter);
  return all;
}

// As train() of toy_nets.hpp, with one of zero/'s stages; compares after every epoch, on rank 0.
template <class T, class Stage>
void must_train_like(Net& net, Stage& stage, ProcessGroup& group, std::int64_t batch,
                     const History& wanted, const MakeOptimizer& make, double tolerance) {
  const std::int64_t share = batch / group.size();
  const Tensor x = rows_of<T>(0, group.rank() * share, share, 10),
               y = rows_of<T>(1, group.rank() * share, share, 5);
  const auto optimizer = stage.make_optimizer({{trained(net), 0.01, 0}}, make);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    backward(mse_loss(net.forward(x), y));
    stage.finish();
    optimizer->step();
    const Tensors seen = whole_state(stage);
    // What ShardedState leaves in the buckets is set to zero as
    // cli/training/parallel_strategies.cpp does.
    optimizer->zero_grad(false);
    if (group.rank() != 0) continue;
    std::vector<NamedTensor> expected = wanted[static_cast<std::size_t>(epoch)];
    std::erase_if(expected,
                  [&](const NamedTensor& each) { return each.name == "shift"; });  // a buffer
    must_be_equal<T>(seen, expected, tolerance);
  }
}

}  // namespace ringside::tests
