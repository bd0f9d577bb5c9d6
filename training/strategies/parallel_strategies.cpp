#include "training/strategies/parallel_strategies.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/system/shared_library.hpp"
#include "base/text/read_number.hpp"
#include "ddp/bucketed.hpp"
#include "ddp/fewer_bytes/bf16_wire.hpp"
#include "ddp/fewer_bytes/local_updates.hpp"
#include "ddp/fewer_bytes/power_sgd.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "ddp/overlap.hpp"
#include "training/strategies/group_strategy.hpp"
#include "training/strategies/single_process.hpp"
#include "zero/zero1.hpp"
#include "zero/zero1_broadcast.hpp"
#include "zero/zero2.hpp"
#include "zero/zero3.hpp"

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
    {"zero1_broadcast", strategy_over<OwnerStrategy<zero::Zero1Broadcast, ddp::Bucketed>>},
    {"zero1", strategy_over<StageStrategy<zero::Zero1>>},
    {"zero2", strategy_over<StageStrategy<zero::Zero2>>},
    {"zero3", strategy_over<StageStrategy<zero::Zero3>>},
};

// A strategy that keeps on each rank what no checkpoint holds.
template <class Method>
class LossyStrategy : public GroupStrategy<Method> {
 public:
  using GroupStrategy<Method>::GroupStrategy;
  void fill_state(autograd::Optimizer&, const ParallelStrategy::SeeTensor&) const override {
    fail(
        "a run with fewer bytes cannot be resumed: each rank has errors or a replica of its own, "
        "which a checkpoint does not hold. Begin a new run from its parameters with --init");
  }
};

class PowerSGDStrategy final : public LossyStrategy<ddp::PowerSGD> {
 public:
  PowerSGDStrategy(collectives::ProcessGroup& group, int rank)
      : LossyStrategy(group, 0, {}), rank_(rank) {}
  void prepare(autograd::Module& model) override { method_.emplace(model, group_, rank_); }

 private:
  int rank_;
};

class LocalStrategy final : public LossyStrategy<ddp::LocalUpdates> {
 public:
  LocalStrategy(collectives::ProcessGroup& group, int steps, const ddp::OuterStep& outer)
      : LossyStrategy(group, 0, {}), steps_(steps), outer_(outer) {}
  void prepare(autograd::Module& model) override { method_.emplace(model, group_, steps_, outer_); }
  void step(autograd::Optimizer& optimizer) override {
    optimizer.step();
    method_->after_update();
  }
  void visit_parameters(const autograd::Module& model, const SeeTensor& see) const override {
    method_->visit_mean(model, see);
  }

 private:
  int steps_;
  ddp::OuterStep outer_;
};

struct Lossy {
  std::string name;
  int number;        // the one that may follow the name; 0: none may
  const char* what;  // it is
  bool is_round;     // it is the steps of a round
  std::unique_ptr<ParallelStrategy> (*make)(collectives::ProcessGroup& group, int number);
};

const Lossy all_lossy[] = {
    {"bf16_wire", 0, "", false,
     [](collectives::ProcessGroup& group, int) -> std::unique_ptr<ParallelStrategy> {
       return std::make_unique<LossyStrategy<ddp::Bf16Wire>>(group, 0, ddp::Alone());
     }},
    {"powersgd", ddp::PowerSGD::default_rank, "the rank of its factors", false,
     [](collectives::ProcessGroup& group, int rank) -> std::unique_ptr<ParallelStrategy> {
       return std::make_unique<PowerSGDStrategy>(group, rank);
     }},
    {"local_sgd", ddp::LocalUpdates::default_steps, "the steps of a round", true,
     [](collectives::ProcessGroup& group, int steps) -> std::unique_ptr<ParallelStrategy> {
       return std::make_unique<LocalStrategy>(group, steps, ddp::OuterStep());
     }},
    {"diloco", ddp::LocalUpdates::default_steps, "the steps of a round", true,
     [](collectives::ProcessGroup& group, int steps) -> std::unique_ptr<ParallelStrategy> {
       return std::make_unique<LocalStrategy>(group, steps, ddp::OuterStep::diloco());
     }},
};

// The entry for "powersgd" or "powersgd:8"; nullptr if there is none.
const Lossy* lossy_named(const std::string& name) {
  const std::string before = name.substr(0, name.find(':'));
  const auto found =
      std::ranges::find_if(all_lossy, [&](const Lossy& each) { return each.name == before; });
  return found == std::end(all_lossy) ? nullptr : &*found;
}

int number_of(const Lossy& strategy, const std::string& name) {
  const std::size_t colon = name.find(':');
  if (colon == name.npos) return strategy.number;
  require(strategy.number > 0, "{} takes no number, but '{}' has one", strategy.name, name);
  const auto number = decimal_number<int>(std::string_view(name).substr(colon + 1));
  require(number >= 1, "expected {}:N, where N is {}, at least 1, but got '{}'", strategy.name,
          strategy.what, name);
  return *number;
}

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

std::vector<std::string> lossy_strategy_names() {
  std::vector<std::string> names;
  for (const Lossy& strategy : all_lossy) names.push_back(strategy.name);
  return names;
}

bool is_lossy(const std::string& name) {
  return !is_strategy_library(name) && lossy_named(name) != nullptr;
}

int steps_of_round(const std::string& name) {
  if (!is_lossy(name)) return 1;
  const Lossy& strategy = *lossy_named(name);
  return strategy.is_round ? number_of(strategy, name) : 1;
}

bool is_strategy_library(const std::string& name) {
  return name.ends_with(".so");
}

std::function<MakeStrategy> find_strategy(const std::string& name) {
  if (is_strategy_library(name)) return load_strategy(name);
  if (const Lossy* const lossy = lossy_named(name)) {
    const int number = number_of(*lossy, name);
    return [lossy, number](collectives::ProcessGroup& group, double, const ddp::Alone&) {
      return lossy->make(group, number);
    };
  }
  const auto found = std::find_if(std::begin(ours), std::end(ours),
                                  [&](const Named& s) { return s.name == name; });
  require(found != std::end(ours),
          "there is no parallel strategy named '{}'; there are {}, and with fewer bytes {}", name,
          fmt::join(strategy_names(), ", "), fmt::join(lossy_strategy_names(), ", "));
  return found->make;
}

}  // namespace ringside::training
