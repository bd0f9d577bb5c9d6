#include "cli/commands/train/run_printer.hpp"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "autograd/kernels/matrix_libraries.hpp"
#include "cli/options/device_option.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/wrap.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::cli {

using training::StepReport;
using transformer::Corpus;

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

}  // namespace

void RunPrinter::print_waiting() const {
  const auto& by_axis = summary_.communication_by_axis;
  const double waited = summary_.communication_seconds;
  if (by_axis.empty()) {
    if (strategy_ != "single")
      fmt::print("waited   {:.1f} s on rank 0, {}\n", waited, waits_in_words(strategy_));
    return;
  }
  std::vector<std::string> parts;
  for (const auto& [axis, seconds] : by_axis)
    if (seconds > 0) parts.push_back(fmt::format("{} {:.1f} s", axis, seconds));
  fmt::print("waited   {:.1f} s on rank 0: {}\n", waited, fmt::join(parts, ", "));
  // The strategy divides the work along dp: its advice helps if most is waited for there.
  const auto longest = std::ranges::max_element(by_axis, {}, &training::SecondsAlong::second);
  if (longest->first == "dp" || longest->first == "fsdp")
    fmt::print("         {}: {}\n", longest->first, waits_in_words(strategy_));
}

void RunPrinter::print_steps() const {
  fmt::print("\n{} steps in {}, {} tokens/s, {:.1f} % of the time in communication\n",
             summary_.last - summary_.first, duration_text(summary_.seconds),
             with_unit(summary_.tokens_per_second()),
             100 * summary_.communication_seconds / summary_.seconds);
  print_waiting();
  fmt::print("loss     {:.3f} bits per byte at first, {:.3f} at last (means of {})\n",
             summary_.first_loss, summary_.last_loss, counted(summary_.at_each_end, "step"));
}

void RunPrinter::print_summary(std::optional<double> validation) const {
  // An elastic run may have lost the rank that printed after its last step.
  if (summary_.last > summary_.first) print_steps();
  if (validation)
    fmt::print("held out {:.3f} bits per byte\n", *validation);
  else
    fmt::print("held out no validation: the held-out text is shorter than one sequence\n");
}

RunPrinter::RunPrinter(const TrainingPlan& plan, std::int64_t first)
    : strategy_(plan.strategy),
      progress_(first, plan.last_step(), stdout),
      metrics_(plan.metrics, first),
      summary_(first, plan.last_step()) {}

void RunPrinter::take_over(const StepReport& last) {
  if (last.step > metrics_.last_step()) metrics_.step(last);
}

void RunPrinter::after_step(const StepReport& report) {
  metrics_.step(report);
  summary_.add(report);
  progress_.step(report);
}

void RunPrinter::after_validation(std::int64_t step, double bits_per_byte) {
  metrics_.validation(step, bits_per_byte);
  progress_.validation(step, bits_per_byte);
}

void RunPrinter::finish(std::optional<double> validation) {
  progress_.end();
  print_summary(validation);
  if (validation) metrics_.validation(summary_.last, *validation);
  std::fflush(stdout);
}

void print_how_to_go_on(const TrainingPlan& plan, std::int64_t steps_taken) {
  fmt::print("stopped  after step {} of {}; {}\n", steps_taken, plan.options.steps,
             plan.save.empty()
                 ? "nothing is saved: --save DIR saves what the ranks hold at the end"
                 : "to go on:\n         " + plan.resume_command(steps_taken == plan.stop_at));
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
  if (config.experts > 0)
    fmt::print("         {} in each layer, {} for each token, which uses {} parameters\n",
               counted(config.experts, "expert"), config.experts_per_token,
               with_unit(static_cast<double>(transformer::active_parameter_count(config))));
  fmt::print("data     {}\n         {}, {}B, {}B of them held out\n", data_text(plan),
             counted(text.files, "file"), with_unit(static_cast<double>(corpus.bytes())),
             with_unit(static_cast<double>(corpus.held_out_bytes())));
  if (!corpus.tokens_are_bytes()) {
    const auto tokens = static_cast<double>(corpus.training().size() + corpus.validation().size());
    fmt::print("tokens   {}: {} of them; the text is {}, {:.2f} bytes each\n",
               plan.vocabulary->name(), corpus.vocabulary(), with_unit(tokens),
               static_cast<double>(corpus.bytes()) / tokens);
  }
  if (plan.device != autograd::Device::cpu)
    fmt::print("device   {}\n", describe(plan.device));
  else if (const auto warning = slow_kernel_warning(autograd::matrix_libraries()); !warning.empty())
    fmt::print("products {}\n", wrap(warning, 76, 9));
  fmt::print("ranks    {}\n", ranks_text(plan, ranks));
  fmt::print("batch    {}{}{}; {} steps\n", batch_text(plan, ranks),
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
