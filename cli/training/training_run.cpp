#include "cli/training/training_run.hpp"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/printable.hpp"
#include "cli/training/interrupt.hpp"
#include "cli/training/product_calibration.hpp"
#include "cli/training/run_printer.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/checkpoint/step_dump.hpp"

namespace ringside::cli {

using collectives::ProcessGroup;
using transformer::Corpus;
using transformer::Model;
using transformer::ParallelStrategy;
using transformer::StepReport;
using transformer::Text;
using transformer::Trainer;

namespace {

// Writes the dumps and the checkpoints of a run. All ranks take part, because the state may be
// sharded; rank 0 writes the files.
class Saver {
 public:
  Saver(const TrainingPlan& plan, const Model& model, const ParallelStrategy& strategy)
      : plan_(plan), model_(model), strategy_(strategy) {}

  void set_trainer(const Trainer& trainer) { trainer_ = &trainer; }

  void after_step(std::int64_t step) const {
    if (!plan_.dump.empty()) dump(step);
    const bool is_last = step == plan_.last_step();
    if (plan_.save_every > 0 && step % plan_.save_every == 0 && !is_last) save();
  }

  void finish() const {
    if (plan_.save.empty()) return;
    save();
    if (!strategy_.writes()) return;
    fmt::print(
        "saved    {}\n         config.json, model.safetensors{} for transformers,\n"
        "         and what --resume needs\n",
        plan_.save.string(), plan_.vocabulary->is_bytes() ? "" : ", tokenizer.json");
  }

 private:
  void save() const { transformer::save_run(plan_.save, model_, *trainer_, *plan_.vocabulary); }

  void dump(std::int64_t step) const {
    using transformer::SeeTensor;
    const bool writes = strategy_.writes();
    const auto name = fmt::format("step{:04}.safetensors", step);
    transformer::dump_step(
        writes ? plan_.dump / name : std::filesystem::path(),
        [&](const SeeTensor& see) { strategy_.visit_parameters(model_, see); },
        [&](const SeeTensor& see) { strategy_.visit_gradients(model_, see); });
  }

  const TrainingPlan& plan_;
  const Model& model_;
  const ParallelStrategy& strategy_;
  const Trainer* trainer_ = nullptr;
};

// Rank 0 generates and prints a sample after `step`. If a forward pass communicates, all ranks
// generate it.
void print_sample(const TrainingPlan& plan, std::int64_t step, const Model& model,
                  const ParallelStrategy& strategy, RunPrinter* printer) {
  const bool is_last = step == plan.last_step();
  const bool due = is_last || (plan.sample_every > 0 && step % plan.sample_every == 0);
  if (plan.sample_tokens == 0 || !due) return;
  if (!strategy.writes() && !strategy.forward_communicates()) return;
  const auto tokens = transformer::generate(model, plan.vocabulary->encode_prompt(sample_beginning),
                                            plan.sample_tokens, plan.sample);
  if (!printer) return;
  printer->end_line();
  fmt::print("\n--- a sample of {} {}{}, temperature {} ---\n{}\n{}", tokens.size(),
             plan.vocabulary->is_bytes() ? "bytes" : "tokens",
             is_last     ? ""
             : step == 0 ? " before the first step"
                         : fmt::format(" after step {}", step),
             plan.sample.temperature, printable(plan.vocabulary->bytes_of(tokens)),
             is_last ? "" : "\n");
}

// Trains, validates, saves and prints, with a model and a strategy that fit each other.
void train(const TrainingPlan& plan, ProcessGroup& group, const Text& text, const Corpus& corpus,
           Model& model, ParallelStrategy& strategy, Recording& recording) {
  Saver saver(plan, model, strategy);
  std::optional<RunPrinter> printer;  // on rank 0
  if (strategy.writes()) {
    prepare_outputs(plan);
    print_header(plan, text, corpus, group.size());
    printer.emplace(plan);
  }
  transformer::Observer observer;
  observer.after_step = [&](const StepReport& report) {
    recording.after_step(report);
    if (printer) printer->after_step(report);
    saver.after_step(report.step);
    if (report.step < plan.last_step())
      print_sample(plan, report.step, model, strategy, printer ? &*printer : nullptr);
    recording.before_step(report.step + 1);
  };
  if (!plan.save.empty()) observer.interrupted = [] { return interrupted_by() != 0; };
  if (printer) {
    observer.after_validation = [&](std::int64_t step, double bits_per_byte) {
      printer->after_validation(step, bits_per_byte);
    };
  }

  Trainer trainer(model, corpus, strategy, plan.options, observer);
  saver.set_trainer(trainer);
  if (plan.resumed) transformer::load_state(*plan.resumed, model, trainer);
  if (trainer.steps_taken() == 0)
    print_sample(plan, 0, model, strategy, printer ? &*printer : nullptr);
  recording.before_step(trainer.steps_taken() + 1);
  if (!plan.save.empty()) catch_interrupts();
  trainer.run(plan.stop_at);
  if (trainer.steps_taken() < plan.last_step()) {
    if (printer) printer->end_line();
    saver.finish();
    group.finish();
    if (printer) print_interruption(plan, trainer.steps_taken());
    return;
  }
  const auto validation = trainer.validate();
  if (printer) printer->finish(validation);
  saver.finish();
  group.finish();  // now, since no rank waits for a sample that rank 0 generates alone
  print_sample(plan, plan.last_step(), model, strategy, printer ? &*printer : nullptr);
  std::fflush(stdout);
}

}  // namespace

void run_training(const TrainingPlan& plan, ProcessGroup& group,
                  std::unique_ptr<ParallelStrategy> given_strategy, Recording& recording) {
  begin_computing(plan.threads);
  const Text text = read_data(plan);
  const Corpus corpus(text.bytes, *plan.vocabulary);
  Model model(plan.config, plan.dtype, plan.device, given_strategy->part(),
              given_strategy->tensor_division());
  if (!plan.init.empty()) transformer::load_parameters(plan.init, model);
  // The strategy is destroyed before the model, from which it removes its hooks.
  const std::unique_ptr<ParallelStrategy> strategy = std::move(given_strategy);
  try {
    train(plan, group, text, corpus, model, *strategy, recording);
  } catch (const std::exception& error) {
    strategy->give_up(error.what());
    throw;
  }
}

}  // namespace ringside::cli
