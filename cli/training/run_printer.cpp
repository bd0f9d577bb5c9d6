#include "cli/training/run_printer.hpp"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/report/numbers.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "transformer/memory.hpp"

namespace ringside::cli {

using transformer::Corpus;
using transformer::StepReport;

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t keep_until) : path_(path) {
  if (path.empty()) return;
  const std::string kept = keep_until > 0 ? rows_until(keep_until) : "";
  file_.open(path, std::ios::trunc);  // prepare_outputs() has checked that this is possible
  file_ << kept << std::flush;
}

void MetricsFile::step(const StepReport& report) {
  write({{"step", report.step},
         {"loss", report.loss},
         {"bits_per_byte", report.bits_per_byte},
         {"tokens_per_second", report.tokens_per_second},
         {"step_seconds", report.step_seconds},
         {"communication_seconds", report.communication_seconds},
         {"gradient_norm", report.gradient_norm},
         {"lr", report.learning_rate}});
}

void MetricsFile::validation(std::int64_t step, double bits_per_byte) {
  write({{"step", step}, {"validation_bits_per_byte", bits_per_byte}});
}

std::string MetricsFile::rows_until(std::int64_t last) const {
  std::ifstream before(path_);
  std::string kept;
  for (std::string line; std::getline(before, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object() && row.contains("step") && row["step"].is_number_integer() &&
        row["step"] <= last)
      kept += line + "\n";
  }
  return kept;
}

void MetricsFile::write(const nlohmann::ordered_json& row) {
  if (path_.empty()) return;
  file_ << row.dump() << std::endl;
  require(file_.good(), "cannot write metrics to {}: is the disk full?", path_.string());
}

Summary::Summary(const TrainingPlan& plan)
    : strategy_(plan.strategy),
      at_each_end_(std::clamp<std::int64_t>((plan.last_step() - plan.first_step()) / 20, 1, 10)),
      first_(plan.first_step()),
      last_(plan.last_step()) {}

void Summary::step(const StepReport& report) {
  const double loss = report.bits_per_byte / static_cast<double>(at_each_end_);
  if (report.step <= first_ + at_each_end_) first_loss_ += loss;
  if (report.step > last_ - at_each_end_) last_loss_ += loss;
  seconds_ += report.step_seconds;
  communication_ += report.communication_seconds;
  tokens_ += report.tokens_per_second * report.step_seconds;
}

// What the ranks waited for, and whether it could have been hidden.
const char* waits_in_words(const std::string& strategy) {
  if (strategy == "naive" || strategy == "flat")
    return "for the gradients of the other ranks, after backward;\n"
           "         --parallel bucketed sends them during backward";
  if (is_strategy_library(strategy)) return "for the other ranks";
  if (strategy == "zero3") return "for parameters to be gathered, and for gradients";
  return "for gradients that backward was too short to hide";
}

void Summary::print(std::optional<double> validation) const {
  fmt::print("\n{} steps in {}, {} tokens/s, {:.1f} % of the time in communication\n",
             last_ - first_, duration_text(seconds_), with_unit(tokens_ / seconds_),
             100 * communication_ / seconds_);
  if (strategy_ != "single")
    fmt::print("waited   {:.1f} s on rank 0, {}\n", communication_, waits_in_words(strategy_));
  fmt::print("loss     {:.3f} bits per byte at first, {:.3f} at last (means of {})\n", first_loss_,
             last_loss_, counted(at_each_end_, "step"));
  if (validation)
    fmt::print("held out {:.3f} bits per byte\n", *validation);
  else
    fmt::print("held out no validation: the held-out text is shorter than one sequence\n");
}

RunPrinter::RunPrinter(const TrainingPlan& plan)
    : last_step_(plan.last_step()),
      progress_(plan.first_step(), last_step_, stdout),
      metrics_(plan.metrics, plan.first_step()),
      summary_(plan) {}

void RunPrinter::after_step(const StepReport& report) {
  metrics_.step(report);
  summary_.step(report);
  progress_.step(report);
}

void RunPrinter::after_validation(std::int64_t step, double bits_per_byte) {
  metrics_.validation(step, bits_per_byte);
  progress_.validation(step, bits_per_byte);
}

void RunPrinter::finish(std::optional<double> validation) {
  progress_.end();
  summary_.print(validation);
  if (validation) metrics_.validation(last_step_, *validation);
  std::fflush(stdout);
}

void print_interruption(const TrainingPlan& plan, std::int64_t steps_taken) {
  fmt::print("stopped  after step {} of {}; to go on:\n         {}\n", steps_taken,
             plan.options.steps, plan.go_on);
  std::fflush(stdout);
}

void print_header(const TrainingPlan& plan, const transformer::Text& text, const Corpus& corpus,
                  int ranks) {
  const auto& config = plan.config;
  const auto& options = plan.options;
  const std::string heads = config.heads == config.kv_heads
                                ? fmt::format("{}", config.heads)
                                : fmt::format("{} on {}", config.heads, config.kv_heads);
  fmt::print("model    {}\n         {}, d_model {}, {} heads, d_ff {}, vocabulary {}{}\n",
             model_text(plan), counted(config.layers, "layer"), config.d_model, heads, config.d_ff,
             config.vocabulary, config.tied_head ? ", tied head" : "");
  fmt::print("data     {}\n         {} files, {}B, {}B of them held out\n", data_text(plan),
             text.files, with_unit(static_cast<double>(corpus.bytes())),
             with_unit(static_cast<double>(corpus.held_out_bytes())));
  if (!corpus.tokens_are_bytes()) {
    const auto tokens = static_cast<double>(corpus.training().size() + corpus.validation().size());
    fmt::print("tokens   {}: {} of them; the text is {}, {:.2f} bytes each\n",
               plan.vocabulary->name(), corpus.vocabulary(), with_unit(tokens),
               static_cast<double>(corpus.bytes()) / tokens);
  }
  if (plan.device != autograd::Device::cpu) fmt::print("device   {}\n", describe(plan.device));
  fmt::print("ranks    {}\n", ranks_text(plan, ranks));
  fmt::print("batch    {}{}{}; {} steps\n", batch_text(plan, ranks),
             options.accumulate == 1 ? "" : fmt::format(" in {} micro-batches", options.accumulate),
             options.checkpoint_activations ? ", activations checkpointed" : "", options.steps);
  const std::vector<std::string> memory = memory_texts(plan);
  for (std::size_t i = 0; i < memory.size(); ++i)
    fmt::print("{:9}{}\n", i == 0 ? "memory" : "", memory[i]);
  if (plan.resumed) {
    fmt::print("resumed  after step {}\n", plan.resumed->step);
    for (const std::string& change : transformer::changes_since(*plan.resumed, options))
      fmt::print("changed  {}\n", change);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace ringside::cli
