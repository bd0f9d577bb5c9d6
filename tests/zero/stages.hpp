// The stages of ZeRO as the tests make them. All offer the functions that
// tests/parallel/single_process.hpp asks for.
#pragma once

#include <memory>

#include "ddp/bucketed.hpp"
#include "tests/parallel/single_process.hpp"
#include "zero/zero1.hpp"
#include "zero/zero1_broadcast.hpp"
#include "zero/zero2.hpp"
#include "zero/zero3.hpp"

namespace ringside::tests {

// Stage 1, first version: gradients averaged by a class of ddp/, and an owner for each parameter.
template <class Strategy>
struct WithOwners : Replicated<Strategy> {
  WithOwners(Module& its_net, ProcessGroup& its_group)
      : Replicated<Strategy>(its_net, its_group), owners(its_group) {}
  std::unique_ptr<zero::ShardedOptimizer> make_optimizer(std::vector<ParameterGroup> groups,
                                                         const MakeOptimizer& make) {
    return std::make_unique<zero::Zero1Broadcast>(std::move(groups), owners, make);
  }
  ProcessGroup& owners;
};

// With buckets of 0.5 kB the small nets have several.
struct StateInBuckets : zero::Zero1 {
  StateInBuckets(Module& net, ProcessGroup& group) : Zero1(net, group, 0.5e-3) {}
};
struct GradientsInBuckets : zero::Zero2 {
  GradientsInBuckets(Module& net, ProcessGroup& group) : Zero2(net, group, 0.5e-3) {}
};
// Wraps every layer.
struct ParametersByLayer : zero::Zero3 {
  ParametersByLayer(Module& net, ProcessGroup& group) : Zero3(net, group, layers_of(net)) {}
  static std::vector<NamedModule> layers_of(Module& net) {
    auto modules = net.named_modules();
    modules.erase(modules.begin());
    return modules;
  }
};

}  // namespace ringside::tests
