#include "cli/commands/train/run_printer.hpp"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "cli/options/device_option.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/wrap.hpp"
#include "collectives/transport/link.hpp"
#include "training/matrix_libraries.hpp"
#include "training/memory_check.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::cli {

using collectives::ProcessGroup;
using training::Plan;
using training::StepReport;

namespace {

// What the data ranks waited for, and whether it could have been hidden.
const char* waits_in_words(const std::string& strategy) {
  if (strategy == "naive" || strategy == "flat")
    return "for the gradients of the other ranks, after backward;\n"
           "         --parallel bucketed sends them during backward";
  if (training::is_strategy_library(strategy)) return "for the other ranks";
  if (training::steps_of_round(strategy) > 1) return "for the mean of the ranks' parameters";
  if (training::is_lossy(strategy)) return "for compressed gradients, after backward";
  if (strategy == "zero3") return "for parameters to be gathered, and for gradients";
  return "for gradients that backward was too short to hide";
}

// "tiny: 857k parameters in fp32"
std::string model_text(const Plan& plan) {
  return fmt::format("{}: {} parameters in {}", plan.model,
                     with_unit(static_cast<double>(transformer::parameter_count(plan.config))),
                     autograd::name_of(plan.dtype));
}

// "2 over shm, flat, 1 thread each"
std::string ranks_text(const Plan& plan, const ProcessGroup& group) {
  const std::string threads = counted(plan.threads, "thread");
  if (group.size() == 1) return fmt::format("1, {} each", threads);
  const auto link = collectives::link_from_environment();
  return fmt::format("{} over {}, {}{}{}, {} each", group.size(), group.backend_name(),
                     plan.mesh.given() ? plan.mesh.text() + ", " : "",
                     std::filesystem::path(plan.strategy).filename().string(),
                     link ? fmt::format(", each behind a link of {}", to_text(*link)) : "",
                     threads);
}

std::string batch_text(const Plan& plan, int ranks) {
  return fmt::format("{} sequences of {} {}, {} on each {}rank", plan.options.batch,
                     plan.options.sequence, plan.vocabulary->is_bytes() ? "bytes" : "tokens",
                     plan.options.batch / plan.data_ranks(ranks),
                     plan.mesh.divides_model() ? "data " : "");
}

std::string data_text(const Plan& plan) {
  if (plan.data.empty())
    return transformer::default_corpus().string() +
           " (the standard library of this program's compiler)";
  std::vector<std::string> names;
  for (const auto& path : plan.data) names.push_back(path.string());
  return fmt::format("{}", fmt::join(names, " "));
}

// What the ranks with each pp coordinate of a mesh need, estimated before the run: "pp=0: 25.1 MB
// (parameters 6.3 MB, ...)". Without a mesh none.
std::vector<std::string> memory_texts(const Plan& plan) {
  std::vector<std::string> lines;
  if (!plan.mesh.given()) return lines;
  const auto text_of = [](double bytes) { return with_unit(bytes) + "B"; };
  const int stages = plan.mesh.shape.size(parallel::Axis::pp);
  for (int stage = 0; stage < stages; ++stage) {
    const auto need = training::memory_of_rank(plan, plan.mesh.data_ranks(), stage);
    lines.push_back(fmt::format("{}: {} ({})",
                                stages == 1 ? "each rank" : fmt::format("pp={}", stage),
                                text_of(need.peak), training::memory_in_parts(need, text_of)));
  }
  return lines;
}

}  // namespace

void RunPrinter::begin(const training::Run& run, const std::string& members) {
  if (!run.writes()) {
    progress_.reset();
    summary_.reset();
    return;
  }
  if (!progress_) {
    const std::int64_t first = run.trainer().steps_taken();
    if (first == plan_.first_step()) print_header(run);
    progress_.emplace(first, plan_.last_step(), stdout);
    summary_.emplace(first, plan_.last_step());
  }
  if (members.empty()) return;
  progress_->end();
  fmt::print("members  {}\n", members);
  std::fflush(stdout);
}

void RunPrinter::after_step(const StepReport& report) {
  recording_.after_step(report);
  if (!progress_) return;
  summary_->add(report);
  progress_->step(report);
}

void RunPrinter::after_validation(std::int64_t step, double bits_per_byte) {
  if (progress_) progress_->validation(step, bits_per_byte);
}

void RunPrinter::after_sample(std::int64_t step, const std::vector<std::int32_t>& tokens) {
  if (!progress_) return;
  progress_->end();
  const bool is_last = step == plan_.last_step();
  const bool bytes = plan_.vocabulary->is_bytes();
  fmt::print("\n--- a sample of {} {}{}, temperature {}{} ---\n{}\n{}", tokens.size(),
             bytes ? "bytes" : "tokens",
             is_last     ? ""
             : step == 0 ? " before the first step"
                         : fmt::format(" after step {}", step),
             plan_.sample.temperature, bytes ? "" : "; their text: ringside tokenize --decode",
             transformer::text_of(tokens, bytes), is_last ? "" : "\n");
}

void RunPrinter::after_steps(const training::Run& run, std::optional<double> bits_per_byte) {
  if (!progress_) return;
  progress_->end();
  if (!run.interrupted()) print_summary(bits_per_byte);
  std::fflush(stdout);
}

void RunPrinter::after_save(const training::Run& run) {
  if (!run.writes()) return;
  fmt::print(
      "saved    {}\n         config.json, model.safetensors{} for transformers,\n"
      "         and what --resume needs\n",
      plan_.save.string(), plan_.vocabulary->is_bytes() ? "" : ", tokenizer.json");
}

// How far a run is that ends before its last step, and the command that continues it if it is
// saved.
void RunPrinter::end(const training::Run& run) {
  const std::int64_t taken = run.trainer().steps_taken();
  if (progress_ && (run.saves() ? taken < plan_.options.steps : run.interrupted()))
    fmt::print("stopped  after step {} of {}; {}\n", taken, plan_.options.steps,
               run.saves() ? "to go on:\n         " + resume_command_(taken == plan_.stop_at)
                           : "nothing is saved: --save DIR saves what the ranks hold at the end");
  std::fflush(stdout);
}

void RunPrinter::write_recording(ProcessGroup& group) {
  recording_.write(group,
                   fmt::format("Training {} on {}", plan_.model, counted(group.size(), "rank")),
                   {{"model", model_text(plan_)},
                    {"ranks", ranks_text(plan_, group)},
                    {"batch", batch_text(plan_, group.size())},
                    {"text", data_text(plan_)}});
}

void RunPrinter::print_waiting() const {
  const auto& by_axis = summary_->communication_by_axis;
  const double waited = summary_->communication_seconds;
  if (by_axis.empty()) {
    if (plan_.strategy != "single")
      fmt::print("waited   {:.1f} s on rank 0, {}\n", waited, waits_in_words(plan_.strategy));
    return;
  }
  std::vector<std::string> parts;
  for (const auto& [axis, seconds] : by_axis)
    if (seconds > 0) parts.push_back(fmt::format("{} {:.1f} s", axis, seconds));
  fmt::print("waited   {:.1f} s on rank 0: {}\n", waited, fmt::join(parts, ", "));
  // The strategy divides the work along dp: its advice helps if most is waited for there.
  const auto longest = std::ranges::max_element(by_axis, {}, &training::SecondsAlong::second);
  if (longest->first == "dp" || longest->first == "fsdp")
    fmt::print("         {}: {}\n", longest->first, waits_in_words(plan_.strategy));
}

void RunPrinter::print_summary(std::optional<double> validation) const {
  // An elastic run may have lost the rank that printed after its last step.
  if (const training::Summary& all = *summary_; all.last > all.first) {
    fmt::print("\n{} steps in {}, {} tokens/s, {:.1f} % of the time in communication\n",
               all.last - all.first, duration_text(all.seconds), with_unit(all.tokens_per_second()),
               100 * all.communication_seconds / all.seconds);
    print_waiting();
    fmt::print("loss     {:.3f} bits per byte at first, {:.3f} at last (means of {})\n",
               all.first_loss, all.last_loss, counted(all.at_each_end, "step"));
  }
  if (validation)
    fmt::print("held out {:.3f} bits per byte\n", *validation);
  else
    fmt::print("held out no validation: the held-out text is shorter than one sequence\n");
}

void RunPrinter::print_header(const training::Run& run) const {
  const Plan& plan = plan_;
  const transformer::Corpus& corpus = run.corpus();
  const auto& config = plan.config;
  const auto& options = plan.options;
  const std::string heads = config.heads == config.kv_heads
                                ? fmt::format("{}", config.heads)
                                : fmt::format("{} on {}", config.heads, config.kv_heads);
  fmt::print("model    {}\n         {}, d_model {}, {} heads, d_ff {}, vocabulary {}{}\n",
             model_text(plan), counted(config.layers, "layer"), config.d_model, heads, config.d_ff,
             config.vocabulary, config.tied_head ? ", tied head" : "");
  if (config.experts > 0)
    fmt::print("         {} in each layer, {} for each token, which uses {} parameters\n",
               counted(config.experts, "expert"), config.experts_per_token,
               with_unit(static_cast<double>(transformer::active_parameter_count(config))));
  fmt::print("data     {}\n         {}, {}B, {}B of them held out\n", data_text(plan),
             counted(corpus.files(), "file"), with_unit(static_cast<double>(corpus.bytes())),
             with_unit(static_cast<double>(corpus.held_out_bytes())));
  if (!corpus.vocabulary().is_bytes()) {
    const auto tokens = static_cast<double>(corpus.training().size() + corpus.validation().size());
    fmt::print("tokens   {} of a tokenizer; the text is {}, {:.2f} bytes each\n",
               corpus.vocabulary().size(), with_unit(tokens),
               static_cast<double>(corpus.bytes()) / tokens);
  }
  if (plan.device != autograd::Device::cpu)
    fmt::print("device   {}\n", describe(plan.device));
  else if (const auto warning = slow_kernel_warning(training::matrix_libraries()); !warning.empty())
    fmt::print("products {}\n", wrap(warning, 76, 9));
  fmt::print("ranks    {}\n", ranks_text(plan, run.group()));
  fmt::print("batch    {}{}{}; {} steps\n", batch_text(plan, run.group().size()),
             options.accumulate == 1 ? "" : fmt::format(" in {} micro-batches", options.accumulate),
             options.recompute.blocks == 0   ? ""
             : options.recompute.blocks == 1 ? ", activations checkpointed"
                                             : ", activations checkpointed in groups",
             options.steps);
  const std::vector<std::string> memory = memory_texts(plan);
  for (std::size_t i = 0; i < memory.size(); ++i)
    fmt::print("{:9}{}\n", i == 0 ? "memory" : "", memory[i]);
  if (plan.resumed) {
    fmt::print("resumed  after step {}\n", plan.resumed->step);
    for (const std::string& change : training::changes_since(*plan.resumed, options))
      fmt::print("changed  {}\n", change);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace ringside::cli
