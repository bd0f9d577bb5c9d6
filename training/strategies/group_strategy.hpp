// GroupStrategy: a method of data parallelism as a strategy of the trainer. The methods of ddp/ and
// zero/ take this way (parallel_strategies.cpp), and so does a method of your own, from a shared
// library:
//
//     class Mine {
//      public:
//       Mine(autograd::Module& model, collectives::ProcessGroup& group);   // rank 0's parameters
//       void finish();                                                     // averages gradients
//     };
//     extern "C" training::MakeStrategy* const ringside_strategy =
//         training::strategy_over<training::GroupStrategy<Mine>>;
//
//     c++ -std=c++20 -O2 -fPIC -shared -I RINGSIDE mine.cpp -o mine.so     RINGSIDE: its sources
//     ringside train -n 4 --parallel ./mine.so
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/process_group.hpp"
#include "collectives/work.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "zero/sharded_optimizer.hpp"

namespace ringside::training {

// Method's constructor takes the model and the group, and those of the options that it knows; it
// broadcasts rank 0's parameters. Its finish() averages the gradients. If it has no_sync(),
// backward communicates except while the result lives; else finish() alone communicates.
template <class Method>
class GroupStrategy : public ParallelStrategy {
 public:
  // The options are those of MakeStrategy.
  GroupStrategy(collectives::ProcessGroup& group, double bucket_mb, const ddp::Alone& alone)
      : group_(group), bucket_mb_(bucket_mb), alone_(alone) {}

  int data_rank() const override { return group_.rank(); }
  int data_ranks() const override { return group_.size(); }
  void prepare(autograd::Module& model) override {
    if constexpr (takes<double, ddp::Alone>)
      method_.emplace(model, group_, bucket_mb_, alone_);
    else if constexpr (takes<double>)
      method_.emplace(model, group_, bucket_mb_);
    else if constexpr (takes<ddp::Alone>)
      method_.emplace(model, group_, alone_);
    else
      method_.emplace(model, group_);
  }
  void finish_gradients() override { method_->finish(); }
  std::shared_ptr<void> no_sync() override {
    if constexpr (requires { method_->no_sync(); })
      return std::shared_ptr<void>(new Quiet<decltype(method_->no_sync())>{method_->no_sync()});
    else
      return nullptr;
  }
  double communication_seconds() const override { return group_.times().blocked; }

  double average(double value) override {
    group_.all_reduce(std::span(&value, 1), collectives::ReduceOp::avg, "loss of all ranks");
    return value;
  }
  bool same_everywhere(double integer) override {
    double mean = integer;
    group_.all_reduce(std::span(&mean, 1), collectives::ReduceOp::avg, "what all ranks read");
    return mean == integer;
  }

 protected:
  // The guard that no_sync() returns cannot be copied or moved, so it is constructed in place.
  template <class Guard>
  struct Quiet {
    Guard guard;
  };

  collectives::ProcessGroup& group_;
  std::optional<Method> method_;

 private:
  template <class... Options>
  static constexpr bool takes =
      std::is_constructible_v<Method, autograd::Module&, collectives::ProcessGroup&, Options...>;
  double bucket_mb_;
  ddp::Alone alone_;
};

// Adds a sharded optimizer, whose state is gathered for checkpoints.
template <class Method>
class ShardedStrategy : public GroupStrategy<Method> {
 public:
  using GroupStrategy<Method>::GroupStrategy;
  using SeeTensor = ParallelStrategy::SeeTensor;

  double gradient_norm(const autograd::Optimizer& optimizer) override {
    return std::sqrt(sharded(optimizer).grad_norm_squared());
  }
  ParallelStrategy::LocalParameters local_parameters(
      const autograd::Optimizer& optimizer) const override {
    return {sharded(optimizer).shards(), true};
  }
  void visit_state(const autograd::Optimizer& optimizer, const SeeTensor& see) const override {
    sharded(optimizer).visit_state(see);
  }
  void fill_state(autograd::Optimizer& optimizer, const SeeTensor& fill) const override {
    dynamic_cast<zero::ShardedOptimizer&>(optimizer).fill_state(fill);
  }

 private:
  static const zero::ShardedOptimizer& sharded(const autograd::Optimizer& optimizer) {
    return dynamic_cast<const zero::ShardedOptimizer&>(optimizer);
  }
};

// Stage 1 of ZeRO with an owner for each parameter: Method averages the gradients, and
// Zero1Broadcast updates the parameters.
template <class Zero1Broadcast, class Method>
class OwnerStrategy final : public ShardedStrategy<Method> {
 public:
  using ShardedStrategy<Method>::ShardedStrategy;

  std::unique_ptr<autograd::Optimizer> make_optimizer(
      std::vector<autograd::ParameterGroup> groups,
      const ParallelStrategy::MakeOptimizer& make) override {
    return std::make_unique<Zero1Broadcast>(std::move(groups), this->group_, make);
  }
};

// The stages of ZeRO that divide flat memory evenly.
template <class Stage>
class StageStrategy final : public ShardedStrategy<Stage> {
 public:
  using ShardedStrategy<Stage>::ShardedStrategy;
  using SeeTensor = ParallelStrategy::SeeTensor;

  std::unique_ptr<autograd::Optimizer> make_optimizer(
      std::vector<autograd::ParameterGroup> groups,
      const ParallelStrategy::MakeOptimizer& make) override {
    return this->method_->make_optimizer(std::move(groups), make);
  }
  void visit_parameters(const autograd::Module&, const SeeTensor& see) const override {
    this->method_->visit_parameters(see);
  }
  void visit_gradients(const autograd::Module&, const SeeTensor& see) const override {
    this->method_->visit_gradients(see);
  }
  bool forward_communicates() const override {
    return requires {
      Stage::forward_communicates;
    };
  }
};

// Makes a Strategy: a MakeStrategy.
template <class Strategy>
std::unique_ptr<ParallelStrategy> strategy_over(collectives::ProcessGroup& group, double bucket_mb,
                                                const ddp::Alone& alone) {
  return std::make_unique<Strategy>(group, bucket_mb, alone);
}

}  // namespace ringside::training
