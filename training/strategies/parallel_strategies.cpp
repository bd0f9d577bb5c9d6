#include "training/strategies/parallel_strategies.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/shared_library.hpp"
#include "ddp/bucketed.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "ddp/overlap.hpp"
#include "training/strategies/group_strategy.hpp"
#include "training/strategies/single_process.hpp"
#include "zero/stage1_broadcast.hpp"
#include "zero/stage1_state.hpp"
#include "zero/stage2_gradients.hpp"
#include "zero/stage3_parameters.hpp"

namespace ringside::training {
namespace {

std::unique_ptr<ParallelStrategy> single_process(collectives::ProcessGroup& group, double,
                                                 const ddp::Alone&) {
  require(
      group.size() == 1,
      "the strategy 'single' trains on one rank, but there are {} ranks: choose another strategy",
      group.size());
  return std::make_unique<SingleProcess>();
}

struct Named {
  std::string name;
  MakeStrategy* make;
};

const Named ours[] = {
    {"single", single_process},
    {"naive", strategy_over<GroupStrategy<ddp::Naive>>},
    {"flat", strategy_over<GroupStrategy<ddp::Flat>>},
    {"overlap", strategy_over<GroupStrategy<ddp::Overlap>>},
    {"bucketed", strategy_over<GroupStrategy<ddp::Bucketed>>},
    {"zero1_broadcast", strategy_over<OwnerStrategy<zero::ShardedOptimizer, ddp::Bucketed>>},
    {"zero1", strategy_over<StageStrategy<zero::ShardedState>>},
    {"zero2", strategy_over<StageStrategy<zero::ShardedGradients>>},
    {"zero3", strategy_over<StageStrategy<zero::ShardedParameters>>},
};

// The library is never closed: what it makes runs to the end.
MakeStrategy* load_strategy(const std::string& library) {
  return variable_of_library<MakeStrategy*>("parallel strategy", library, "ringside_strategy",
                                            "training/strategies/group_strategy.hpp");
}

}  // namespace

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Named& strategy : ours) names.push_back(strategy.name);
  return names;
}

bool is_strategy_library(const std::string& name) {
  return name.ends_with(".so");
}

MakeStrategy* find_strategy(const std::string& name) {
  if (is_strategy_library(name)) return load_strategy(name);
  const auto found = std::find_if(std::begin(ours), std::end(ours),
                                  [&](const Named& s) { return s.name == name; });
  require(found != std::end(ours), "there is no parallel strategy named '{}'; there are {}", name,
          fmt::join(strategy_names(), ", "));
  return found->make;
}

}  // namespace ringside::training
