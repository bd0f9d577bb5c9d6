#include "training/run.hpp"

#include <exception>
#include <utility>

#include "training/mesh/mesh_strategy.hpp"
#include "training/same_options.hpp"
#include "training/state/training_state.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

namespace ringside::training {
namespace {

std::unique_ptr<ParallelStrategy> strategy_of(const Plan& plan, collectives::ProcessGroup& group) {
  if (!plan.mesh) return make_strategy(plan.strategy, group, plan.bucket_mb);
  return std::make_unique<MeshStrategy>(group, *plan.mesh, plan.config, plan.strategy,
                                        plan.bucket_mb);
}

}  // namespace

Run::Run(const Plan& plan, collectives::ProcessGroup& group, const transformer::Corpus& corpus)
    : plan_(plan), corpus_(corpus), strategy_(strategy_of(plan, group)) {
  model_ = std::make_unique<transformer::Model>(plan.config, plan.dtype, plan.device,
                                                strategy_->part(), strategy_->tensor_division());
  if (!plan.init.empty()) transformer::load_parameters(plan.init, *model_);
}

Trainer& Run::start(Observer observer) {
  trainer_ =
      std::make_unique<Trainer>(*model_, corpus_, *strategy_, plan_.options, std::move(observer));
  if (plan_.resumed) load_state(*plan_.resumed, *model_, *trainer_);
  return *trainer_;
}

void Run::attempt(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    strategy_->give_up(error.what());
    throw;
  }
}

void train(const Plan& plan, collectives::ProcessGroup& group, const transformer::Corpus& corpus,
           Observer observer) {
  require_same_options(shared_options(plan), group);
  if (plan.mesh) {
    plan.mesh->shape.require_ranks(group.size());
    require_divisible(*plan.mesh, plan.config, plan.options, plan.strategy);
  }
  Run run(plan, group, corpus);
  run.attempt([&] { run.start(std::move(observer)).run(plan.stop_at); });
}

}  // namespace ringside::training
