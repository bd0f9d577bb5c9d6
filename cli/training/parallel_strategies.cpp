#include "cli/training/parallel_strategies.hpp"

#include <cmath>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>

#include <fmt/format.h>

#include "autograd/optim/clip.hpp"
#include "base/error.hpp"
#include "collectives/work.hpp"
#include "ddp/bucketed.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "ddp/overlap.hpp"
#include "transformer/single_process.hpp"
#include "zero/stage1_broadcast.hpp"
#include "zero/stage1_state.hpp"
#include "zero/stage2_gradients.hpp"
#include "zero/stage3_parameters.hpp"

namespace ringside::cli {
namespace {

using autograd::Optimizer;
using autograd::ParameterGroup;
using zero::PartitionedOptimizer;

// The common part of all strategies over a group. Strategy is a class of ddp/ or zero/. Its
// constructor takes the model, the group and further arguments, and broadcasts rank 0's parameters;
// its finish() averages the gradients.
template <class Strategy, class... More>
class GroupStrategy : public transformer::ParallelStrategy {
 public:
  explicit GroupStrategy(collectives::ProcessGroup& group, More... more)
      : group_(group), more_(more...) {}

  int data_rank() const override { return group_.rank(); }
  int data_ranks() const override { return group_.size(); }
  void prepare(autograd::Module& model) override {
    std::apply([&](const auto&... more) { strategy_.emplace(model, group_, more...); }, more_);
  }
  void finish_gradients() override { strategy_->finish(); }
  std::shared_ptr<void> no_sync() override {
    if constexpr (requires { strategy_->no_sync(); })
      return std::shared_ptr<void>(new Quiet<decltype(strategy_->no_sync())>{strategy_->no_sync()});
    else
      return nullptr;  // finish() alone communicates
  }
  double communication_seconds() const override { return group_.times().blocked; }

  // Gradients that are views into buckets are set to zero; others are freed.
  void clear_gradients(Optimizer& optimizer) override {
    optimizer.zero_grad(!std::is_same_v<Strategy, ddp::Bucketed> &&
                        !std::is_same_v<Strategy, zero::ShardedState>);
  }

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
  std::tuple<More...> more_;
  std::optional<Strategy> strategy_;
};

// Adds a sharded optimizer, whose state is gathered for checkpoints.
template <class Base>
class WithPartitionedOptimizer : public Base {
 public:
  using Base::Base;

  double clip_gradients(Optimizer& optimizer, double max_norm) override {
    const double norm = std::sqrt(partitioned(optimizer).grad_norm_squared());
    if (max_norm > 0) optimizer.set_gradient_scale(autograd::clip_factor(norm, max_norm));
    return norm;
  }
  transformer::ParallelStrategy::LocalParameters local_parameters(
      const Optimizer& optimizer) const override {
    return {partitioned(optimizer).shards(), true};
  }
  void visit_state(const Optimizer& optimizer,
                   const transformer::ParallelStrategy::SeeTensor& see) const override {
    partitioned(optimizer).visit_state(see);
  }
  void fill_state(Optimizer& optimizer,
                  const transformer::ParallelStrategy::SeeTensor& fill) const override {
    dynamic_cast<PartitionedOptimizer&>(optimizer).fill_state(fill);
  }

 private:
  static const PartitionedOptimizer& partitioned(const Optimizer& optimizer) {
    return dynamic_cast<const PartitionedOptimizer&>(optimizer);
  }
};

// Stage 1 with an owner for each parameter: Bucketed averages the gradients.
class OwnerStrategy final : public WithPartitionedOptimizer<GroupStrategy<ddp::Bucketed, double>> {
 public:
  using WithPartitionedOptimizer::WithPartitionedOptimizer;
  std::unique_ptr<Optimizer> make_optimizer(std::vector<ParameterGroup> groups,
                                            const MakeOptimizer& make) override {
    return std::make_unique<zero::ShardedOptimizer>(std::move(groups), group_, make);
  }
};

// The stages that divide flat memory evenly.
template <class Stage, class... More>
class StageStrategy final : public WithPartitionedOptimizer<GroupStrategy<Stage, More...>> {
 public:
  using WithPartitionedOptimizer<GroupStrategy<Stage, More...>>::WithPartitionedOptimizer;
  using SeeTensor = transformer::ParallelStrategy::SeeTensor;

  std::unique_ptr<Optimizer> make_optimizer(
      std::vector<ParameterGroup> groups,
      const transformer::ParallelStrategy::MakeOptimizer& make) override {
    return this->strategy_->make_optimizer(std::move(groups), make);
  }
  void visit_parameters(const autograd::Module&, const SeeTensor& see) const override {
    this->strategy_->visit_parameters(see);
  }
  void visit_gradients(const autograd::Module&, const SeeTensor& see) const override {
    this->strategy_->visit_gradients(see);
  }
  bool forward_communicates() const override {
    return std::is_same_v<Stage, zero::ShardedParameters>;
  }
};

}  // namespace

std::vector<std::string> strategy_names() {
  return {"single",          "naive", "flat",  "overlap", "bucketed",
          "zero1_broadcast", "zero1", "zero2", "zero3"};
}

std::unique_ptr<transformer::ParallelStrategy> make_strategy(const std::string& name,
                                                             collectives::ProcessGroup& group,
                                                             double bucket_mb,
                                                             const ddp::Alone& alone) {
  if (name == "naive") return std::make_unique<GroupStrategy<ddp::Naive>>(group);
  if (name == "flat") return std::make_unique<GroupStrategy<ddp::Flat>>(group);
  if (name == "overlap") return std::make_unique<GroupStrategy<ddp::Overlap>>(group);
  if (name == "bucketed")
    return std::make_unique<GroupStrategy<ddp::Bucketed, double>>(group, bucket_mb);
  if (name == "zero1_broadcast") return std::make_unique<OwnerStrategy>(group, bucket_mb);
  if (name == "zero1")
    return std::make_unique<StageStrategy<zero::ShardedState, double, ddp::Alone>>(group, bucket_mb,
                                                                                   alone);
  if (name == "zero2")
    return std::make_unique<StageStrategy<zero::ShardedGradients, double, ddp::Alone>>(
        group, bucket_mb, alone);
  if (name == "zero3")
    return std::make_unique<StageStrategy<zero::ShardedParameters, ddp::Alone>>(group, alone);
  require(name == "single", "there is no parallel strategy named '{}'; there are {}", name,
          fmt::join(strategy_names(), ", "));
  require(
      group.size() == 1,
      "the strategy 'single' trains on one rank, but there are {} ranks: choose another strategy",
      group.size());
  return std::make_unique<transformer::SingleProcess>();
}

transformer::Held held_by(const std::string& name, int ranks, double bucket_mb) {
  transformer::Held held;
  if (name == "flat") held.gradients = 2;
  if (name.starts_with("zero")) held.optimizer = 1.0 / ranks;
  if (name == "zero2" || name == "zero3") held.gradients = 1.0 / ranks;
  if (name == "zero2")
    held.bucket_bytes = bucket_mb * 1e6,
    held.buckets_under_way = zero::GradientShards::most_under_way;
  if (name == "zero3") held.parameters = 1.0 / ranks, held.whole_units = true;
  return held;
}

}  // namespace ringside::cli
