#include "cli/training/training_run.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numbers>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "autograd/kernels/parallel.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "cli/training/progress.hpp"
#include "collectives/transport/link.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/checkpoint/step_dump.hpp"
#include "transformer/memory.hpp"
#include "transformer/single_process.hpp"

namespace ringside::cli {

using transformer::Corpus;
using transformer::Model;
using transformer::ParallelStrategy;
using transformer::StepReport;
using transformer::Text;
using transformer::Trainer;

namespace {

namespace fs = std::filesystem;

constexpr const char* sample_beginning = "\n";

// A file of JSON lines, one per step and one per examination, each there for whoever reads along as
// soon as it is written.
class Metrics {
 public:
  // Rows of steps after `keep_until` are of a run that was interrupted after its last checkpoint:
  // those steps are taken again.
  Metrics(const fs::path& path, std::int64_t keep_until) : path_(path) {
    if (path.empty()) return;
    const std::string kept = keep_until > 0 ? rows_until(keep_until) : "";
    file_.open(path, std::ios::trunc);  // prepare_outputs() has said why if it cannot be
    file_ << kept << std::flush;
  }

  void step(const StepReport& report) {
    write({{"step", report.step},
           {"loss", report.loss},
           {"bits_per_byte", report.bits_per_byte},
           {"tokens_per_second", report.tokens_per_second},
           {"step_seconds", report.step_seconds},
           {"communication_seconds", report.communication_seconds},
           {"gradient_norm", report.gradient_norm},
           {"lr", report.learning_rate}});
  }

  void validation(std::int64_t step, double bits_per_byte) {
    write({{"step", step}, {"validation_bits_per_byte", bits_per_byte}});
  }

 private:
  std::string rows_until(std::int64_t last) const {
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

  void write(const nlohmann::ordered_json& row) {
    if (path_.empty()) return;
    file_ << row.dump() << std::endl;
    require(file_.good(), "cannot write metrics to {}: is the disk full?", path_.string());
  }

  fs::path path_;
  std::ofstream file_;
};

void make_folder(const fs::path& directory) {
  if (directory.empty()) return;
  std::error_code error;
  fs::create_directories(directory, error);
  require(!error, "cannot make the folder {}: {}", directory.string(), error.message());
}

std::string names_of(const TrainingPlan& plan) {
  if (plan.data.empty())
    return transformer::default_corpus().string() +
           " (the standard library this program was built with)";
  std::vector<std::string> names;
  for (const fs::path& path : plan.data) names.push_back(path.string());
  return fmt::format("{}", fmt::join(names, " "));
}

void print_header(const TrainingPlan& plan, const Text& text, const Corpus& corpus, int ranks) {
  const auto& config = plan.config;
  const auto& options = plan.options;
  const std::string heads = config.heads == config.kv_heads
                                ? fmt::format("{}", config.heads)
                                : fmt::format("{} on {}", config.heads, config.kv_heads);
  fmt::print(
      "model    {}: {} parameters in {}; {} layers, d_model {}, {} heads, d_ff {}, vocabulary "
      "{}{}\n",
      plan.model_name, with_unit(static_cast<double>(transformer::parameter_count(config))),
      autograd::name_of(plan.dtype), config.layers, config.d_model, heads, config.d_ff,
      config.vocabulary, config.tied_head ? ", tied head" : "");
  fmt::print("data     {}: {} files, {}B, {}B of them held out\n", names_of(plan), text.files,
             with_unit(static_cast<double>(corpus.bytes())),
             with_unit(static_cast<double>(corpus.held_out_bytes())));
  if (!corpus.tokens_are_bytes()) {
    const auto tokens = static_cast<double>(corpus.training().size() + corpus.validation().size());
    fmt::print("tokens   {}: {} of them; the text is {}, {:.2f} bytes each\n",
               plan.vocabulary->name(), corpus.vocabulary(), with_unit(tokens),
               static_cast<double>(corpus.bytes()) / tokens);
  }
  if (plan.device != autograd::Device::cpu) fmt::print("device   {}\n", describe(plan.device));
  const auto link = collectives::link_from_environment();
  fmt::print("ranks    {}{}{}, {} {} each\n", ranks,
             ranks == 1 ? "" : fmt::format(" over {}, {}", plan.backend, plan.strategy),
             ranks == 1 || !link ? "" : fmt::format(", each behind a link of {}", to_text(*link)),
             plan.threads, plan.threads == 1 ? "thread" : "threads");
  std::string parts =
      options.accumulate == 1 ? "" : fmt::format(" in {} micro-batches", options.accumulate);
  if (options.checkpoint_activations) parts += ", activations checkpointed";
  fmt::print("batch    {} sequences of {} {}, {} on each rank{}; {} steps\n", options.batch,
             options.sequence, corpus.tokens_are_bytes() ? "bytes" : "tokens",
             options.batch / ranks, parts, options.steps);
  if (plan.resumed) {
    fmt::print("resumed  after step {}\n", plan.resumed->step);
    for (const std::string& change : transformer::changes_since(*plan.resumed, options))
      fmt::print("changed  {}\n", change);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

// Means over the first and the last steps of a run: one step's loss is a matter of luck.
class Summary {
 public:
  // Of the steps after `first` up to `last`.
  Summary(std::int64_t first, std::int64_t last)
      : at_each_end_(std::clamp<std::int64_t>((last - first) / 20, 1, 10)),
        begin_(first),
        steps_(last) {}

  void step(const StepReport& report) {
    if (report.step <= begin_ + at_each_end_)
      first_ += report.bits_per_byte / static_cast<double>(at_each_end_);
    if (report.step > steps_ - at_each_end_)
      last_ += report.bits_per_byte / static_cast<double>(at_each_end_);
    seconds_ += report.step_seconds;
    communication_ += report.communication_seconds;
    tokens_ += report.tokens_per_second * report.step_seconds;
  }

  void print(std::optional<double> held_out) const {
    fmt::print("\n{} steps in {}, {} tokens/s, {:.1f} % of the time in communication\n",
               steps_ - begin_, in_hours(seconds_), with_unit(tokens_ / seconds_),
               100 * communication_ / seconds_);
    fmt::print("loss     {:.3f} bits per byte at first, {:.3f} at last (means of {})\n", first_,
               last_, at_each_end_ == 1 ? "one step" : fmt::format("{} steps", at_each_end_));
    if (held_out)
      fmt::print("held out {:.3f} bits per byte\n", *held_out);
    else
      fmt::print("held out nothing: that part of the text is too short for one sequence\n");
  }

 private:
  std::int64_t at_each_end_, begin_, steps_;
  double first_ = 0, last_ = 0, seconds_ = 0, communication_ = 0, tokens_ = 0;
};

// Made on rank 0, and by all together where that takes all ranks; rank 0 prints it.
void print_sample(const TrainingPlan& plan, const Model& model, const ParallelStrategy& strategy) {
  if (plan.sample_tokens == 0 || (strategy.rank() != 0 && !strategy.forward_communicates())) return;
  const auto tokens = transformer::generate(model, plan.vocabulary->encode_prompt(sample_beginning),
                                            plan.sample_tokens, plan.sample);
  if (strategy.rank() != 0) return;
  fmt::print("\n--- a sample of {} {}, temperature {} ---\n{}\n", tokens.size(),
             plan.vocabulary->is_bytes() ? "bytes" : "tokens", plan.sample.temperature,
             printable(plan.vocabulary->bytes_of(tokens)));
}

// What is kept of a run. Every rank does it, since what there is to keep may be shared out; rank 0
// writes.
struct Keeper {
  void after_step(std::int64_t step) const {
    if (!plan.dump.empty()) dump(step);
    const bool is_last = step == std::min(plan.stop_at, plan.options.steps);
    if (plan.save_every > 0 && step % plan.save_every == 0 && !is_last)
      transformer::save_run(plan.save, model, *trainer, *plan.vocabulary);
  }

  void dump(std::int64_t step) const {
    const fs::path path =
        strategy.rank() == 0 ? plan.dump / fmt::format("step{:04}.safetensors", step) : fs::path();
    transformer::dump_step(
        path, [&](const transformer::SeeTensor& see) { strategy.visit_parameters(model, see); },
        [&](const transformer::SeeTensor& see) { strategy.visit_gradients(model, see); });
  }

  void finish() const {
    if (plan.save.empty()) return;
    transformer::save_run(plan.save, model, *trainer, *plan.vocabulary);
    if (strategy.rank() != 0) return;
    fmt::print(
        "saved    {} (config.json and model.safetensors{}, as transformers reads them, and what "
        "--resume needs)\n",
        plan.save.string(), plan.vocabulary->is_bytes() ? "" : ", tokenizer.json");
  }

  const TrainingPlan& plan;
  const Model& model;
  const ParallelStrategy& strategy;
  const Trainer* trainer = nullptr;
};

// What rank 0 tells. On the other ranks none of it exists.
struct Reporter {
  explicit Reporter(const TrainingPlan& plan)
      : begin(plan.resumed ? plan.resumed->step : 0),
        end(std::min(plan.stop_at, plan.options.steps)),
        progress(begin, end, stdout),
        metrics(plan.metrics, begin),
        summary(begin, end) {}

  void after_step(const StepReport& report) {
    metrics.step(report);
    summary.step(report);
    progress.step(report);
  }

  void after_validation(std::int64_t step, double bits_per_byte) {
    metrics.validation(step, bits_per_byte);
    progress.validation(step, bits_per_byte);
  }

  void finish(std::optional<double> held_out) {
    progress.end();
    summary.print(held_out);
    if (held_out) metrics.validation(end, *held_out);
    std::fflush(stdout);
  }

  std::int64_t begin, end;  // the steps after `begin` up to `end` are taken
  Progress progress;
  Metrics metrics;
  Summary summary;
};

}  // namespace

Text read_data(const TrainingPlan& plan) {
  return transformer::read_text(plan.data.empty() ? std::vector{transformer::default_corpus()}
                                                  : plan.data);
}

void check_plan(const TrainingPlan& plan, int ranks) {
  const transformer::Bytes text = read_data(plan).bytes;
  const Corpus bytes(text);
  if (plan.resumed) transformer::require_text_of(*plan.resumed, bytes.fingerprint());
  transformer::validate(plan.options, plan.config, ranks);
  if (plan.sample_tokens > 0)
    plan.vocabulary->encode_prompt(sample_beginning);  // throws if there are no such tokens
  // The ranks encode the text, each for itself; so does this only where it may be too short: a
  // token is at most so many bytes.
  const auto counts = plan.vocabulary->byte_counts();
  const std::size_t longest = *std::max_element(counts.begin(), counts.end());
  if (bytes.training().size() / longest <= static_cast<std::size_t>(plan.options.sequence))
    transformer::validate(plan.options, plan.config, Corpus(text, *plan.vocabulary), ranks);
  const std::int64_t begin = plan.resumed ? plan.resumed->step : 0;
  require(plan.stop_at > begin, "the run cannot stop after step {}: {} are taken already",
          plan.stop_at, begin);
  recording_of(plan);
}

Recording recording_of(const TrainingPlan& plan) {
  return {plan.recording, plan.resumed ? plan.resumed->step : 0,
          std::min(plan.stop_at, plan.options.steps)};
}

std::vector<std::pair<std::string, std::string>> facts_of(const TrainingPlan& plan, int ranks) {
  const auto& options = plan.options;
  const auto link = collectives::link_from_environment();
  return {{"model",
           fmt::format("{}: {} parameters in {}", plan.model_name,
                       with_unit(static_cast<double>(transformer::parameter_count(plan.config))),
                       autograd::name_of(plan.dtype))},
          {"ranks",
           fmt::format(
               "{}{}{}, {} {} each", ranks,
               ranks == 1 ? "" : fmt::format(" over {}, {}", plan.backend, plan.strategy),
               ranks == 1 || !link ? "" : fmt::format(", each behind a link of {}", to_text(*link)),
               plan.threads, plan.threads == 1 ? "thread" : "threads")},
          {"batch",
           fmt::format("{} sequences of {} {}, {} on each rank", options.batch, options.sequence,
                       plan.vocabulary->is_bytes() ? "bytes" : "tokens", options.batch / ranks)},
          {"text", names_of(plan)}};
}

void check_memory(const TrainingPlan& plan, int ranks, int ranks_on_this_machine) {
  transformer::validate(plan.config);
  if (plan.device == autograd::Device::cuda && !environment("RANK")) return;  // the ranks ask
  require_memory(transformer::memory_needed(plan.config, plan.options, plan.dtype, ranks,
                                            held_by(plan.strategy, ranks, plan.bucket_mb)),
                 ranks_on_this_machine, plan.memory_limit_gb,
                 "choose a smaller model or batch, fewer ranks on this machine, or --accumulate "
                 "and --checkpoint-activations for fewer activations",
                 plan.device);
}

void prepare_outputs(const TrainingPlan& plan) {
  make_folder(plan.dump);
  make_folder(plan.save);
  for (const auto& [path, what] :
       {std::pair(plan.metrics, "metrics"), std::pair(plan.recording.trace, "the trace"),
        std::pair(plan.recording.report, "the report")}) {
    if (path.empty()) continue;
    const bool writable = std::ofstream(path, std::ios::app).is_open();
    require(writable, "cannot write {} to {}: {}", what, path.string(), std::strerror(errno));
  }
  if (!plan.save.empty()) transformer::require_no_other_tokenizer(plan.save, *plan.vocabulary);
}

void run_training(const TrainingPlan& plan, std::unique_ptr<ParallelStrategy> given_strategy,
                  Recording& recording) {
  autograd::set_threads(plan.threads);
  const Text text = read_data(plan);
  const Corpus corpus(text.bytes, *plan.vocabulary);
  Model model(plan.config, plan.dtype, plan.device);
  if (!plan.init.empty()) transformer::load_parameters(plan.init, model);
  const std::unique_ptr<ParallelStrategy> owned_strategy =
      std::move(given_strategy);  // goes before the model, from which it takes its hooks back
  ParallelStrategy& strategy = *owned_strategy;

  std::optional<Reporter> reporter;
  Keeper keeper{plan, model, strategy};
  transformer::Observer observer;
  observer.after_step = [&](const StepReport& report) {
    recording.after_step(report);
    if (reporter) reporter->after_step(report);
    keeper.after_step(report.step);
    recording.before_step(report.step + 1);
  };
  if (strategy.rank() == 0) {
    prepare_outputs(plan);
    print_header(plan, text, corpus, strategy.size());
    reporter.emplace(plan);
    observer.after_validation = [&](std::int64_t step, double bits_per_byte) {
      reporter->after_validation(step, bits_per_byte);
    };
  }
  Trainer trainer(model, corpus, strategy, plan.options, observer);
  keeper.trainer = &trainer;
  if (plan.resumed) transformer::load_state(*plan.resumed, model, trainer);
  recording.before_step(trainer.steps_taken() + 1);
  trainer.run(plan.stop_at);
  const auto held_out = trainer.validate();
  if (reporter) reporter->finish(held_out);
  keeper.finish();
  print_sample(plan, model, strategy);
  std::fflush(stdout);
}

}  // namespace ringside::cli
