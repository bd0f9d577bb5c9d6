#include "cli/commands/training/training_run.hpp"

#include <cstdio>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/text/printable.hpp"
#include "cli/commands/training/run_printer.hpp"
#include "training/interrupt.hpp"
#include "training/product_calibration.hpp"
#include "training/run.hpp"
#include "transformer/checkpoint/step_dump.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using training::StepReport;
using training::Trainer;
using transformer::Corpus;
using transformer::Text;

// This rank's part: it trains, validates, saves and prints.
class RankRun {
 public:
  RankRun(const TrainingPlan& plan, ProcessGroup& group, const Text& text, const Corpus& corpus,
          Recording& recording)
      : plan_(plan),
        group_(group),
        text_(text),
        corpus_(corpus),
        recording_(recording),
        run_(plan, group, corpus) {}

  void run() {
    run_.attempt([&] { train(); });
  }

 private:
  void train() {
    const bool saves = !plan_.save.empty();
    if (writes()) {
      prepare_outputs(plan_);
      print_header(plan_, text_, corpus_, group_.size());
      printer_.emplace(plan_);
    }
    trainer_ = &run_.start(observer());
    if (trainer_->steps_taken() == 0) sample(0);
    recording_.before_step(trainer_->steps_taken() + 1);
    if (saves) training::catch_interrupts();
    trainer_->run(plan_.stop_at);
    const bool interrupted = trainer_->steps_taken() < plan_.last_step();
    const auto validation = interrupted ? std::nullopt : trainer_->validate();
    if (printer_) interrupted ? printer_->end_line() : printer_->finish(validation);
    if (saves) save_at_end();
    group_.finish();  // now, since no rank waits for a sample that rank 0 generates alone
    if (!interrupted) sample(plan_.last_step());
    if (printer_ && saves && trainer_->steps_taken() < plan_.options.steps)
      print_how_to_go_on(plan_, trainer_->steps_taken());
    std::fflush(stdout);
  }

  bool writes() const { return run_.strategy().writes(); }

  training::Observer observer() {
    training::Observer observer;
    observer.after_step = [this](const StepReport& report) { after_step(report); };
    if (!plan_.save.empty()) observer.interrupted = [] { return training::interrupted_by() != 0; };
    if (printer_) {
      observer.after_validation = [this](std::int64_t step, double bits_per_byte) {
        printer_->after_validation(step, bits_per_byte);
      };
    }
    return observer;
  }

  void after_step(const StepReport& report) {
    recording_.after_step(report);
    if (printer_) printer_->after_step(report);
    if (!plan_.dump.empty()) dump(report.step);
    if (report.step < plan_.last_step()) {
      if (plan_.save_every > 0 && report.step % plan_.save_every == 0) save();
      sample(report.step);
    }
    recording_.before_step(report.step + 1);
  }

  // All ranks save and dump, because the state may be sharded; rank 0 writes the files.
  void save() const {
    training::save_run(plan_.save, run_.model(), *trainer_, *plan_.vocabulary, plan_.data);
  }

  void save_at_end() const {
    save();
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
        [&](const SeeTensor& see) { run_.strategy().visit_parameters(run_.model(), see); },
        [&](const SeeTensor& see) { run_.strategy().visit_gradients(run_.model(), see); });
  }

  // Rank 0 generates and prints a sample after `step`. If a forward pass communicates, all ranks
  // generate it.
  void sample(std::int64_t step) {
    const bool is_last = step == plan_.last_step();
    const bool due = is_last || (plan_.sample_every > 0 && step % plan_.sample_every == 0);
    if (plan_.sample_tokens == 0 || !due) return;
    if (!writes() && !run_.strategy().forward_communicates()) return;
    const auto tokens =
        transformer::generate(run_.model(), plan_.vocabulary->encode_prompt(sample_beginning),
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
  ProcessGroup& group_;
  const Text& text_;
  const Corpus& corpus_;
  Recording& recording_;
  training::Run run_;
  Trainer* trainer_ = nullptr;
  std::optional<RunPrinter> printer_;  // on rank 0
};

}  // namespace

void run_training(const TrainingPlan& plan, ProcessGroup& group, Recording& recording) {
  training::begin_computing(plan.threads);
  const Text text = read_data(plan);
  const Corpus corpus(text.bytes, *plan.vocabulary);
  RankRun(plan, group, text, corpus, recording).run();
}

}  // namespace ringside::cli
