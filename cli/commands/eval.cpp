// `ringside eval`: evaluates a checkpoint on given tokens, with figures to compare with another
// framework.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <cmath>

#include "cli/commands/train/unchanged_checkpoint.hpp"
#include "cli/options/command.hpp"
#include "cli/options/device_option.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"
#include "cli/options/rank_options.hpp"
#include "cli/pictures/json_file.hpp"
#include "training/memory_check.hpp"
#include "training/product_calibration.hpp"
#include "training/state/step_dump.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/inference/evaluation.hpp"

namespace ringside::cli {
namespace {

struct EvalArguments {
  std::string init, tokens, json, grads, logits, dtype = "fp32";
  std::int64_t sequence = 0, batch = 8;
  int threads = 1;
  std::optional<double> memory_limit;
  bool accept_changes = false;
  DeviceOption device;
};

// The checkpoint's vocabulary. Only bits per byte need it, so a missing or damaged file is no
// error.
std::optional<transformer::Vocabulary> vocabulary_beside(const std::string& checkpoint,
                                                         std::FILE* out) {
  try {
    return transformer::Vocabulary::of_checkpoint(checkpoint);
  } catch (const Error& problem) {
    fmt::print(out, "no bits per byte: {}\n", problem.what());
    return std::nullopt;
  }
}

void write_json(const EvalArguments& args, const transformer::Evaluation& evaluation,
                std::optional<double> bits) {
  Json json = {{"model", args.init},
               {"dtype", args.dtype},
               {"sequences", evaluation.log_probabilities.size()},
               {"tokens", evaluation.predicted_tokens},
               {"loss", evaluation.loss},
               {"perplexity", std::exp(evaluation.loss)}};
  if (bits) json["bits_per_byte"] = *bits;
  json["log_probabilities"] = evaluation.log_probabilities;
  write_json_file(args.json, json);
}

void write_logits(const EvalArguments& args, const transformer::Evaluation& evaluation) {
  std::vector<transformer::ArrayView> arrays;
  for (std::size_t s = 0; s < evaluation.logits.size(); ++s)
    arrays.push_back(transformer::view_of(std::to_string(s), evaluation.logits[s]));
  transformer::write_safetensors(args.logits, arrays);
}

void check_memory(const EvalArguments& args, const transformer::Config& config,
                  autograd::DType dtype, autograd::Device device,
                  const std::vector<transformer::Tokens>& sequences) {
  std::size_t longest = 0, all = 0;
  for (const transformer::Tokens& sequence : sequences)
    longest = std::max(longest, sequence.size()), all += sequence.size();
  const auto at_once = std::min(static_cast<std::int64_t>(sequences.size()), args.batch);
  const double kept_logits = args.logits.empty() ? 0 : static_cast<double>(all);
  training::require_memory(
      training::memory_to_evaluate(config, dtype, at_once, static_cast<std::int64_t>(longest),
                                   !args.grads.empty(), kept_logits, device),
      1, args.memory_limit, "choose a smaller --batch, or a smaller model", device);
}

void evaluate(const EvalArguments& args) {
  training::begin_computing(args.threads);
  const transformer::Config config = transformer::load_config(args.init);
  const auto sequences =
      transformer::read_tokens(args.tokens, args.sequence > 0 ? args.sequence : config.sequence);
  transformer::check_sequences(sequences, config);
  const auto dtype = autograd::dtype_named(args.dtype);
  const auto device = device_from(args.device, dtype);
  check_memory(args, config, dtype, device, sequences);
  take_device(device);
  const transformer::Model model(config, dtype, device);
  require_unchanged(args.init, args.accept_changes);
  transformer::load_parameters(args.init, model);
  const transformer::EvaluateOptions options{
      .gradients = !args.grads.empty(), .logits = !args.logits.empty(), .at_once = args.batch};
  const transformer::Evaluation evaluation = transformer::evaluate(model, sequences, options);
  const auto known = vocabulary_beside(args.init, file_beside(args.json));
  const auto bits = known ? bits_per_byte(evaluation, sequences, *known, config) : std::nullopt;
  if (!args.json.empty()) write_json(args, evaluation, bits);
  if (!args.grads.empty()) training::save_gradients(args.grads, model);
  if (!args.logits.empty()) write_logits(args, evaluation);
  fmt::print(
      file_beside(args.json),
      "loss {:.6f} nats per token, perplexity {:.3f}{}: {} tokens predicted in {} sequences, {}\n",
      evaluation.loss, std::exp(evaluation.loss),
      bits ? fmt::format(", {:.4f} bits per byte", *bits) : "", evaluation.predicted_tokens,
      sequences.size(), args.dtype);
}

}  // namespace

void add_eval_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "eval", "Evaluate a checkpoint on given tokens: loss, log-probabilities, gradients",
      evaluate);
  option("--init DIR", args.init, "The checkpoint's folder: config.json and model.safetensors")
      .required();
  option.flag("--accept-changes", args.accept_changes,
              "Use the checkpoint although its files were changed after it was saved");
  option("--tokens FILE", args.tokens, "The tokens; formats: see below").required();
  option("--json FILE", args.json, "Write loss and log-probabilities to this file");
  option("--grads FILE", args.grads, "Write all gradients to this file, as safetensors");
  option("--logits FILE", args.logits,
         "Write the logits to this file, as safetensors: one array per sequence, named "
         "by its number");
  option("--dtype TYPE", args.dtype, "Compute in fp32 or fp64 [fp32]", one_of({"fp32", "fp64"}));
  option("--sequence N", args.sequence,
         "Cut a stream of tokens into sequences of N tokens [as many as the model can attend to]",
         at_least_one("token"));
  option("--batch N", args.batch, "Sequences in memory at once [8]", at_least_one("sequence"));
  add_memory_limit(option, args.memory_limit);
  add_device_option(option, args.device);
  option("--threads N", args.threads, "Number of threads [1]", at_least_one("thread"));
}

}  // namespace ringside::cli
