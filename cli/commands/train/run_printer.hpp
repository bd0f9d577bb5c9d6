// What rank 0 of a training run prints and writes to --metrics. The other ranks have no RunPrinter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/commands/train/progress.hpp"
#include "cli/commands/train/training_plan.hpp"
#include "training/metrics_file.hpp"
#include "training/summary.hpp"
#include "training/trainer.hpp"
#include "transformer/data/corpus.hpp"

namespace ringside::cli {

class RunPrinter {
 public:
  // From step `first` + 1 on.
  RunPrinter(const TrainingPlan& plan, std::int64_t first);

  // Of an elastic run, after the rank that printed before is lost: writes the row of the last step
  // that this rank has taken, if the other could not.
  void take_over(const training::StepReport& last);

  void after_step(const training::StepReport& report);
  void after_validation(std::int64_t step, double bits_per_byte);
  void end_line() { progress_.end(); }  // before anything else is printed
  void finish(std::optional<double> validation);

 private:
  void print_waiting() const;
  void print_steps() const;
  void print_summary(std::optional<double> validation) const;

  std::string strategy_;
  Progress progress_;
  training::MetricsFile metrics_;
  training::Summary summary_;
};

// How far a run is that ends before its last step, and the command that continues it if it is
// saved.
void print_how_to_go_on(const TrainingPlan& plan, std::int64_t steps_taken);

// The lines above the first step: model, data, ranks, batch.
void print_header(const TrainingPlan& plan, const transformer::Text& text,
                  const transformer::Corpus& corpus, int ranks);

}  // namespace ringside::cli
