#include "cli/commands/train/training_run.hpp"

#include <cstdio>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/text/printable.hpp"
#include "cli/commands/train/run_printer.hpp"
#include "training/elastic/elastic_run.hpp"
#include "training/interrupt.hpp"
#include "training/product_calibration.hpp"
#include "training/run.hpp"
#include "training/state/background_save.hpp"
#include "transformer/checkpoint/step_dump.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using training::StepReport;
using training::Trainer;
using transformer::Corpus;
using transformer::Text;

// This rank's part: it trains, validates, saves and prints.
class RankRun final : public training::ElasticRank {
 public:
  RankRun(const TrainingPlan& plan, const Text& text, const Corpus& corpus, Recording& recording)
      : plan_(plan), text_(text), corpus_(corpus), recording_(recording) {}

  void run(ProcessGroup& group) {
    group_ = &group;
    run_.emplace(plan_, group, corpus_);
    run_->attempt([&] {
      if (run_->strategy().writes()) open_outputs();
      trainer_ = &run_->start(observer());
      if (saves()) training::catch_interrupts();
      before_steps();
      trainer_->run(plan_.stop_at);
      end();
    });
  }

  // The same with a group that changes.
  void run_elastic(const collectives::RankInfo& rank_info) {
    elastic_.emplace(plan_, rank_info, plan_.backend, corpus_, observer());
    if (saves()) training::catch_interrupts();
    elastic_->run(*this);
  }

 private:
  void open_outputs() {
    prepare_outputs(plan_);
    print_header(plan_, text_, corpus_, group_->size());
    printer_.emplace(plan_, plan_.first_step());
  }

  void meet(ProcessGroup& group) override {
    // Once rank 0 has heard from this one, it may write to the same folder.
    if (group.rank() != 0) saving_.finish();
    auto options = shared_options(plan_, {});
    std::erase_if(options, [](const auto& option) { return option.first == "--resume"; });
    training::require_same_options(options, group);
  }

  // The rank that prints may be another one than before.
  void begin(const Generation& now) override {
    group_ = &now.group;
    trainer_ = &now.trainer;
    if (!writes()) {
      printer_.reset();
    } else if (now.is_first) {
      open_outputs();
    } else if (!printer_) {
      printer_.emplace(plan_, trainer_->steps_taken());
      if (now.last) printer_->take_over(*now.last);
    }
    if (printer_) {
      printer_->end_line();
      fmt::print("members  {}\n", now.members);
      std::fflush(stdout);
    }
    before_steps();
  }

  void before_steps() {
    if (trainer_->steps_taken() == 0) sample(0);
    recording_.before_step(trainer_->steps_taken() + 1);
  }

  void end() override {
    const bool interrupted = trainer_->steps_taken() < plan_.last_step();
    const auto validation = interrupted ? std::nullopt : trainer_->validate();
    if (printer_) interrupted ? printer_->end_line() : printer_->finish(validation);
    if (saves()) save_at_end();
    group_->finish();  // now, since no rank waits for a sample that rank 0 generates alone
    if (!interrupted) sample(plan_.last_step());
    if (printer_ && (saves() ? trainer_->steps_taken() < plan_.options.steps : interrupted))
      print_how_to_go_on(plan_, trainer_->steps_taken());
    std::fflush(stdout);
  }

  bool saves() const { return !plan_.save.empty(); }
  bool writes() const { return trainer_->strategy().writes(); }

  training::Observer observer() {
    training::Observer observer;
    observer.after_step = [this](const StepReport& report) { after_step(report); };
    if (saves()) observer.interrupted = [] { return training::interrupted_by() != 0; };
    observer.after_validation = [this](std::int64_t step, double bits_per_byte) {
      if (printer_) printer_->after_validation(step, bits_per_byte);
    };
    return observer;
  }

  void after_step(const StepReport& report) {
    recording_.after_step(report);
    if (printer_) printer_->after_step(report);
    if (!plan_.dump.empty()) dump(report.step);
    saving_.check();
    if (report.step < plan_.last_step()) {
      if (plan_.save_every > 0 && report.step % plan_.save_every == 0) save();
      sample(report.step);
    }
    recording_.before_step(report.step + 1);
  }

  // All ranks save and dump, because the state may be sharded; rank 0 writes the files.
  void save() {
    saving_.finish();
    auto write =
        training::copy_run(plan_.save, trainer_->model(), *trainer_, *plan_.vocabulary, plan_.data);
    if (writes()) saving_.start(std::move(write));
  }

  void save_at_end() {
    saving_.finish();
    training::save_run(plan_.save, trainer_->model(), *trainer_, *plan_.vocabulary, plan_.data);
    if (!writes()) return;
    fmt::print(
        "saved    {}\n         config.json, model.safetensors{} for transformers,\n"
        "         and what --resume needs\n",
        plan_.save.string(), plan_.vocabulary->is_bytes() ? "" : ", tokenizer.json");
  }

  void dump(std::int64_t step) const {
    using transformer::SeeTensor;
    const auto name = fmt::format("step{:04}.safetensors", step);
    transformer::dump_step(
        writes() ? plan_.dump / name : std::filesystem::path(),
        [&](const SeeTensor& see) {
          trainer_->strategy().visit_parameters(trainer_->model(), see);
        },
        [&](const SeeTensor& see) {
          trainer_->strategy().visit_gradients(trainer_->model(), see);
        });
  }

  // Rank 0 generates and prints a sample after `step`. If a forward pass communicates, all ranks
  // generate it.
  void sample(std::int64_t step) {
    const bool is_last = step == plan_.last_step();
    const bool due = is_last || (plan_.sample_every > 0 && step % plan_.sample_every == 0);
    if (plan_.sample_tokens == 0 || !due) return;
    if (!writes() && !trainer_->strategy().forward_communicates()) return;
    const auto tokens =
        transformer::generate(trainer_->model(), plan_.vocabulary->encode_prompt(sample_beginning),
                              plan_.sample_tokens, plan_.sample);
    if (!printer_) return;
    printer_->end_line();
    fmt::print("\n--- a sample of {} {}{}, temperature {} ---\n{}\n{}", tokens.size(),
               plan_.vocabulary->is_bytes() ? "bytes" : "tokens",
               is_last     ? ""
               : step == 0 ? " before the first step"
                           : fmt::format(" after step {}", step),
               plan_.sample.temperature, printable(plan_.vocabulary->bytes_of(tokens)),
               is_last ? "" : "\n");
  }

  const TrainingPlan& plan_;
  const Text& text_;
  const Corpus& corpus_;
  Recording& recording_;
  std::optional<training::Run> run_;  // or
  std::optional<training::ElasticRun> elastic_;
  ProcessGroup* group_ = nullptr;
  Trainer* trainer_ = nullptr;
  std::optional<RunPrinter> printer_;  // on rank 0
  training::BackgroundSave saving_;    // of the rank that writes; ends before what it reads
};

}  // namespace

void run_training(const TrainingPlan& plan, ProcessGroup& group, Recording& recording) {
  training::begin_computing(plan.threads);
  const Text text = read_data(plan);
  const Corpus corpus(text.bytes, *plan.vocabulary);
  RankRun(plan, text, corpus, recording).run(group);
}

void run_elastic_training(const TrainingPlan& plan, const collectives::RankInfo& rank_info) {
  training::begin_computing(plan.threads);
  const Text text = read_data(plan);
  const Corpus corpus(text.bytes, *plan.vocabulary);
  Recording nothing = recording_of(plan);
  RankRun(plan, text, corpus, nothing).run_elastic(rank_info);
}

}  // namespace ringside::cli
