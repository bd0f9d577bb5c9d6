#include "cli/commands/train/training_run.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "base/text/printable.hpp"
#include "base/text/words.hpp"
#include "cli/commands/train/run_printer.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/group_options.hpp"
#include "training/elastic/membership.hpp"
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
class RankRun {
 public:
  RankRun(const TrainingPlan& plan, ProcessGroup& group, const Text& text, const Corpus& corpus,
          Recording& recording)
      : plan_(plan), group_(&group), text_(text), corpus_(corpus), recording_(recording) {}

  void run() {
    run_.emplace(plan_, *group_, corpus_);
    run_->attempt([&] {
      if (writes()) begin();
      start();
      train();
    });
  }

  // The same with a group that changes: from each change of the membership to the next. This rank
  // has been made with a group of itself alone.
  void run_with(training::Membership& membership) {
    membership_ = &membership;
    run_.emplace(plan_, *group_, corpus_);
    start();
    run_->leave();
    for (std::int64_t steps = -1;;) {  // whose state this rank has
      auto group = membership.join(steps);
      if (!group) return;
      group_ = &*group;
      try {
        // Before rank 0 hears from this one: then it may write to the same folder.
        if (group->rank() != 0) saving_.finish();
        auto options = shared_options(plan_, {});
        std::erase_if(options, [](const auto& option) { return option.first == "--resume"; });
        training::require_same_options(options, *group);
        // It counts as one without a state until it has all of it.
        if (membership.newest_step() != steps) steps = -1;
        run_->join(*group, steps < 0);
        steps = trainer_->steps_taken();
        begin_generation();
        if (train()) return;
        loss_.clear();
      } catch (const collectives::RankFailure& failure) {
        const std::string reason = failure.what();
        loss_ = ": " + reason.substr(0, reason.find(" ["));  // without the calls of all ranks
      } catch (const std::exception& error) {
        group->abort(error.what());
        run_->leave();
        throw;
      }
      if (steps >= 0) steps = trainer_->steps_taken();
      run_->leave();  // while there is the group
    }
  }

 private:
  void begin() {
    prepare_outputs(plan_);
    print_header(plan_, text_, corpus_, group_->size());
    printer_.emplace(plan_, plan_.first_step());
  }

  // The rank that prints may be another one than before.
  void begin_generation() {
    const std::int64_t taken = trainer_->steps_taken();
    if (!writes()) {
      printer_.reset();
    } else if (membership_->newest_step() < 0) {
      begin();
    } else if (!printer_) {
      printer_.emplace(plan_, taken);
      if (last_report_ && last_report_->step == taken) printer_->take_over(*last_report_);
    }
    if (!printer_) return;
    printer_->end_line();
    fmt::print("members  {} after step {}{}\n", ranks_in_words(sorted(membership_->members())),
               taken, loss_);
    std::fflush(stdout);
  }

  static std::vector<int> sorted(std::vector<int> numbers) {
    std::ranges::sort(numbers);
    return numbers;
  }

  void start() {
    trainer_ = &run_->start(observer());
    if (!plan_.save.empty()) training::catch_interrupts();
  }

  // Whether the run has come to its end, and not to another membership.
  bool train() {
    const bool saves = !plan_.save.empty();
    if (trainer_->steps_taken() == 0) sample(0);
    recording_.before_step(trainer_->steps_taken() + 1);
    if (!membership_ || !membership_->too_few()) trainer_->run(plan_.stop_at);
    const bool interrupted = trainer_->steps_taken() < plan_.last_step();
    if (interrupted && membership_ && !membership_->too_few() && !anybody_is_to_stop())
      return false;
    const auto validation = interrupted ? std::nullopt : trainer_->validate();
    if (printer_) interrupted ? printer_->end_line() : printer_->finish(validation);
    if (saves) save_at_end();
    group_->finish();  // now, since no rank waits for a sample that rank 0 generates alone
    if (!interrupted) sample(plan_.last_step());
    if (printer_ && saves && trainer_->steps_taken() < plan_.options.steps)
      print_how_to_go_on(plan_, trainer_->steps_taken());
    else if (printer_ && interrupted && membership_)
      fmt::print(
          "stopped  after step {} of {}; nothing is saved: an elastic run saves what its last "
          "ranks hold if it has --save\n",
          trainer_->steps_taken(), plan_.options.steps);
    std::fflush(stdout);
    return true;
  }

  // A signal, unlike a rank that waits, ends the run: if any rank has had it.
  bool anybody_is_to_stop() {
    std::array<std::int64_t, 1> signal{training::interrupted_by()};
    group_->all_reduce(std::span(signal), collectives::ReduceOp::max, "signals");
    return signal[0] != 0;
  }

  bool writes() const { return run_->strategy().writes(); }

  training::Observer observer() {
    training::Observer observer;
    observer.after_step = [this](const StepReport& report) { after_step(report); };
    if (!plan_.save.empty() || membership_)
      observer.interrupted = [this] {
        return training::interrupted_by() != 0 || (membership_ && membership_->somebody_waits());
      };
    observer.after_validation = [this](std::int64_t step, double bits_per_byte) {
      if (printer_) printer_->after_validation(step, bits_per_byte);
    };
    return observer;
  }

  void after_step(StepReport report) {
    if (membership_) {
      report.members = membership_->members();
      last_report_ = report;
    }
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
        training::copy_run(plan_.save, run_->model(), *trainer_, *plan_.vocabulary, plan_.data);
    if (writes()) saving_.start(std::move(write));
  }

  void save_at_end() {
    saving_.finish();
    training::save_run(plan_.save, run_->model(), *trainer_, *plan_.vocabulary, plan_.data);
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
        [&](const SeeTensor& see) { run_->strategy().visit_parameters(run_->model(), see); },
        [&](const SeeTensor& see) { run_->strategy().visit_gradients(run_->model(), see); });
  }

  // Rank 0 generates and prints a sample after `step`. If a forward pass communicates, all ranks
  // generate it.
  void sample(std::int64_t step) {
    const bool is_last = step == plan_.last_step();
    const bool due = is_last || (plan_.sample_every > 0 && step % plan_.sample_every == 0);
    if (plan_.sample_tokens == 0 || !due) return;
    if (!writes() && !run_->strategy().forward_communicates()) return;
    const auto tokens =
        transformer::generate(run_->model(), plan_.vocabulary->encode_prompt(sample_beginning),
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
  ProcessGroup* group_;
  training::Membership* membership_ = nullptr;  // of an elastic run
  std::optional<StepReport> last_report_;       // of an elastic run
  std::string loss_;                            // of a member: what this rank was told of it
  const Text& text_;
  const Corpus& corpus_;
  Recording& recording_;
  std::optional<training::Run> run_;
  Trainer* trainer_ = nullptr;
  std::optional<RunPrinter> printer_;  // on rank 0
  training::BackgroundSave saving_;    // of the rank that writes; ends before what it reads
};

}  // namespace

void run_training(const TrainingPlan& plan, ProcessGroup& group, Recording& recording) {
  training::begin_computing(plan.threads);
  const Text text = read_data(plan);
  const Corpus corpus(text.bytes, *plan.vocabulary);
  RankRun(plan, group, text, corpus, recording).run();
}

void run_elastic_training(const TrainingPlan& plan, const collectives::RankInfo& rank_info) {
  training::begin_computing(plan.threads);
  training::Membership membership(rank_info, plan.backend);
  const Text text = read_data(plan);
  const Corpus corpus(text.bytes, *plan.vocabulary);
  Recording nothing = recording_of(plan);
  collectives::GroupOptions options = collectives::group_options_from_environment();
  options.executor.group = fmt::format("start@{}", rank_info.rank);
  ProcessGroup alone = ProcessGroup::over(collectives::connect_tcp({}), options, 1);
  RankRun(plan, alone, text, corpus, nothing).run_with(membership);
}

}  // namespace ringside::cli
