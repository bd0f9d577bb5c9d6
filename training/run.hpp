// Run: one rank's part in a training run on any mesh: it trains, validates, saves, and writes what
// the plan asks for. `ringside train` takes this way, and so does a program of your own:
// tests/install/assignment/train_on_mesh.cpp. From main to a step it is six calls:
//
//     train, run_on_ranks, train_as_rank    cli/commands/train/train.cpp
//     Run::run                              here
//     Trainer::run, Trainer::step           trainer.hpp
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/process_group.hpp"
#include "training/metrics_file.hpp"
#include "training/plan/plan.hpp"
#include "training/state/background_save.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "training/trainer.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/model.hpp"

namespace ringside::training {

class Run;

// What a run tells its program, on every rank and in this order. `ringside train` prints it on the
// rank that writes.
class Reporter {
 public:
  virtual ~Reporter() = default;
  // Before the first step of a group. The text says who is in it if the run is elastic, and why.
  virtual void begin(const Run&, const std::string&) {}
  virtual void before_step(std::int64_t) {}
  virtual void after_step(const StepReport&) {}
  virtual void after_validation(std::int64_t, double) {}  // the step, and bits per byte
  virtual void after_sample(std::int64_t, const std::vector<std::int32_t>&) {}
  // After the last step, with the last validation; none if the run was interrupted, or the held-out
  // text is too short.
  virtual void after_steps(const Run&, std::optional<double>) {}
  virtual void after_save(const Run&) {}  // the last one
  virtual void end(const Run&) {}
};

class Run {
 public:
  // All arguments must outlive it. Construct it on the thread that will compute.
  Run(const Plan& plan, const transformer::Corpus& corpus, Reporter& reporter)
      : plan_(plan), corpus_(corpus), reporter_(reporter) {}
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Trains as one rank of `group`, from the first step of the plan to its last, or until a signal
  // interrupts a run that is saved. Every rank must call it, once, with the same plan
  // (require_same_options). Throws Error if the ranks cannot divide the model so; the ranks that
  // wait for this one then end with its reason.
  void run(collectives::ProcessGroup& group);

  const Plan& plan() const { return plan_; }
  const transformer::Corpus& corpus() const { return corpus_; }
  const Trainer& trainer() const { return *trainer_; }
  const collectives::ProcessGroup& group() const { return *group_; }
  bool writes() const { return trainer_->strategy().writes(); }  // of all ranks, this one
  bool saves() const { return !plan_.save.empty(); }
  bool interrupted() const { return trainer_->steps_taken() < plan_.last_step(); }

 protected:
  // Makes the model, or this rank's part of it, and the trainer, in the state that the run begins
  // with.
  void make_trainer(ParallelStrategy& strategy);
  virtual Observer observer();

  // Around the steps that `group` takes; the rank that writes may be another one than before.
  void begin(collectives::ProcessGroup& group, const std::string& members = "");
  void end();

  const Plan& plan_;
  const transformer::Corpus& corpus_;
  Reporter& reporter_;
  std::unique_ptr<transformer::Model> model_;
  // Destroyed before the model, from which it removes its hooks.
  std::unique_ptr<ParallelStrategy> strategy_;
  std::unique_ptr<Trainer> trainer_;
  collectives::ProcessGroup* group_ = nullptr;
  std::optional<MetricsFile> metrics_;  // on the rank that writes
  BackgroundSave saving_;               // of that rank; ends before what it reads

 private:
  void after_step(const StepReport& report);
  void save();
  bool dumps(std::int64_t step) const;
  void dump(std::int64_t step) const;
  void sample(std::int64_t step);
};

// Trains as one rank of `group`, from the first step of the plan to its last. Every rank must call
// it. Throws the same Error on all ranks if their plans differ.
void train(const Plan& plan, collectives::ProcessGroup& group, const transformer::Corpus& corpus,
           Reporter& reporter);

}  // namespace ringside::training
