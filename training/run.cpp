#include "training/run.hpp"

#include <exception>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "training/interrupt.hpp"
#include "training/mesh/mesh_strategy.hpp"
#include "training/plan/prepare.hpp"
#include "training/plan/same_options.hpp"
#include "training/state/step_dump.hpp"
#include "training/state/training_state.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/inference/generation.hpp"

namespace ringside::training {
namespace {

std::unique_ptr<ParallelStrategy> strategy_of(const Plan& plan, collectives::ProcessGroup& group) {
  if (!plan.mesh.given()) return make_strategy(plan.strategy, group, plan.bucket_mb);
  return std::make_unique<MeshStrategy>(group, plan.mesh, plan.config, plan.strategy,
                                        plan.bucket_mb);
}

}  // namespace

void Run::run(collectives::ProcessGroup& group) {
  strategy_ = strategy_of(plan_, group);
  try {
    make_trainer(*strategy_);
    begin(group);
    trainer_->run(plan_.stop_at);
    end();
  } catch (const std::exception& error) {
    strategy_->give_up(error.what());
    throw;
  }
}

void Run::make_trainer(ParallelStrategy& strategy) {
  model_ = std::make_unique<transformer::Model>(plan_.config, plan_.dtype, plan_.device,
                                                strategy.part(), strategy.model_ranks());
  if (!plan_.init.empty()) transformer::load_parameters(plan_.init, *model_);
  trainer_ = std::make_unique<Trainer>(*model_, corpus_, strategy, plan_.options, observer());
  if (plan_.resumed) load_state(*plan_.resumed, *model_, *trainer_);
}

Observer Run::observer() {
  Observer observer;
  observer.after_step = [this](const StepReport& report) { after_step(report); };
  if (saves()) observer.interrupted = [] { return interrupted_by() != 0; };
  observer.after_validation = [this](std::int64_t step, double bits_per_byte) {
    if (metrics_) metrics_->validation(step, bits_per_byte);
    reporter_.after_validation(step, bits_per_byte);
  };
  return observer;
}

void Run::begin(collectives::ProcessGroup& group, const std::string& members) {
  group_ = &group;
  if (!writes()) {
    metrics_.reset();
  } else if (!metrics_) {
    if (trainer_->steps_taken() == plan_.first_step()) prepare_outputs(plan_);
    metrics_.emplace(plan_.metrics, trainer_->steps_taken());
  }
  reporter_.begin(*this, members);
  if (saves()) catch_interrupts();
  if (trainer_->steps_taken() == 0) sample(0);
  reporter_.before_step(trainer_->steps_taken() + 1);
}

void Run::after_step(const StepReport& report) {
  if (metrics_) metrics_->step(report);
  reporter_.after_step(report);
  if (dumps(report.step)) dump(report.step);
  saving_.check();
  if (report.step < plan_.last_step()) {
    if (plan_.save_every > 0 && report.step % plan_.save_every == 0) save();
    sample(report.step);
  }
  reporter_.before_step(report.step + 1);
}

void Run::end() {
  const auto validation = interrupted() ? std::nullopt : trainer_->validate();
  if (metrics_ && validation) metrics_->validation(plan_.last_step(), *validation);
  reporter_.after_steps(*this, validation);
  if (saves()) {
    saving_.finish();
    save_run(plan_.save, *model_, *trainer_, *plan_.vocabulary, plan_.data);
    reporter_.after_save(*this);
  }
  group_->finish();  // now, since no rank waits for a sample that rank 0 generates alone
  if (!interrupted()) sample(plan_.last_step());
  reporter_.end(*this);
}

// All ranks save and dump, because the state may be sharded; rank 0 writes the files.
void Run::save() {
  saving_.finish();
  auto write = copy_run(plan_.save, *model_, *trainer_, *plan_.vocabulary, plan_.data);
  if (writes()) saving_.start(std::move(write));
}

bool Run::dumps(std::int64_t step) const {
  if (plan_.dump.empty()) return false;
  const bool at_an_end = step == plan_.first_step() + 1 || step == plan_.last_step();
  return at_an_end || (plan_.dump_every > 0 && step % plan_.dump_every == 0);
}

void Run::dump(std::int64_t step) const {
  using transformer::SeeTensor;
  const auto name = fmt::format("step{:04}.safetensors", step);
  dump_step(
      writes() ? plan_.dump / name : std::filesystem::path(),
      [&](const SeeTensor& see) { trainer_->strategy().visit_parameters(*model_, see); },
      [&](const SeeTensor& see) { trainer_->strategy().visit_gradients(*model_, see); });
}

// Rank 0 generates a sample after `step`. If a forward pass communicates, all ranks generate it.
void Run::sample(std::int64_t step) {
  const bool is_last = step == plan_.last_step();
  const bool due = is_last || (plan_.sample_every > 0 && step % plan_.sample_every == 0);
  if (plan_.sample_tokens == 0 || !due) return;
  if (!writes() && !trainer_->strategy().forward_communicates()) return;
  reporter_.after_sample(step, transformer::generate(*model_, plan_.vocabulary->beginning(),
                                                     plan_.sample_tokens, plan_.sample));
}

void train(const Plan& plan, collectives::ProcessGroup& group, const transformer::Corpus& corpus,
           Reporter& reporter) {
  require_same_options(shared_options(plan), group);
  if (plan.mesh.given()) {
    plan.mesh.shape.require_ranks(group.size());
    require_divisible(plan.mesh, plan.config, plan.options, plan.strategy);
  }
  Run(plan, corpus, reporter).run(group);
}

}  // namespace ringside::training
