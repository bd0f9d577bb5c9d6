// What rank 0 of a training run prints and writes to --metrics. The other ranks have no RunPrinter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "cli/training/progress.hpp"
#include "cli/training/training_plan.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/trainer.hpp"

namespace ringside::cli {

// A file of JSON lines, one for each step and one for each validation. Each line is flushed, so
// that other programs can follow the run.
class MetricsFile {
 public:
  // An empty path writes nothing. Rows of steps after `keep_until` come from a run that was
  // interrupted after its last checkpoint. They are dropped, because those steps run again.
  MetricsFile(const std::filesystem::path& path, std::int64_t keep_until);

  void step(const transformer::StepReport& report);
  void validation(std::int64_t step, double bits_per_byte);

 private:
  std::string rows_until(std::int64_t last) const;
  void write(const nlohmann::ordered_json& row);

  std::filesystem::path path_;
  std::ofstream file_;
};

// Means over the first and the last steps of a run, because the loss of a single step is noisy.
class Summary {
 public:
  explicit Summary(const TrainingPlan& plan);

  void step(const transformer::StepReport& report);
  void print(std::optional<double> validation) const;

 private:
  std::string strategy_;
  std::int64_t at_each_end_, first_, last_;  // steps: those after first_, up to and including last_
  double first_loss_ = 0, last_loss_ = 0, seconds_ = 0, communication_ = 0, tokens_ = 0;
};

class RunPrinter {
 public:
  explicit RunPrinter(const TrainingPlan& plan);

  void after_step(const transformer::StepReport& report);
  void after_validation(std::int64_t step, double bits_per_byte);
  void end_line() { progress_.end(); }  // before anything else is printed
  void finish(std::optional<double> validation);

 private:
  std::int64_t last_step_;
  Progress progress_;
  MetricsFile metrics_;
  Summary summary_;
};

// How far an interrupted run is, and the command that continues it.
void print_interruption(const TrainingPlan& plan, std::int64_t steps_taken);

// The lines above the first step: model, data, ranks, batch.
void print_header(const TrainingPlan& plan, const transformer::Text& text,
                  const transformer::Corpus& corpus, int ranks);

}  // namespace ringside::cli
