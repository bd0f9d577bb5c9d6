// Run: one rank's part in a training run on any mesh. `ringside train` takes this way, and so does
// a program of your own: tests/install/assignment/train_on_mesh.cpp.
#pragma once

#include <functional>
#include <memory>

#include "collectives/process_group.hpp"
#include "training/plan.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "training/trainer.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/model.hpp"

namespace ringside::training {

class Run {
 public:
  // Makes the strategy of the plan, and the model or this rank's part of it, from plan.init if that
  // is given. All arguments must outlive it. Every rank must construct it, on the thread that will
  // compute, with the same plan (require_same_options). Throws Error if the ranks cannot divide the
  // model so.
  Run(const Plan& plan, collectives::ProcessGroup& group, const transformer::Corpus& corpus);

  const transformer::Model& model() const { return *model_; }
  const ParallelStrategy& strategy() const { return *strategy_; }

  // The trainer, which continues plan.resumed if there is one. Call it once.
  Trainer& start(Observer observer = {});

  // Calls `body`. If it throws, the ranks that wait for this one end with its reason.
  void attempt(const std::function<void()>& body);

 private:
  const Plan& plan_;
  const transformer::Corpus& corpus_;
  std::unique_ptr<transformer::Model> model_;
  // Destroyed before the model, from which it removes its hooks.
  std::unique_ptr<ParallelStrategy> strategy_;
  std::unique_ptr<Trainer> trainer_;
};

// Trains as one rank of `group`, from the first step of the plan to its last. Every rank must call
// it. Throws the same Error on all ranks if their plans differ.
void train(const Plan& plan, collectives::ProcessGroup& group, const transformer::Corpus& corpus,
           Observer observer = {});

}  // namespace ringside::training
