// `ringside eval`: evaluates a checkpoint on given tokens, with figures to compare with another
// framework.

#include <algorithm>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <cmath>

#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/one_of.hpp"
#include "cli/report/json_file.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/product_calibration.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/checkpoint/step_dump.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/inference/evaluation.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more = R"(
Files of tokens, recognised by their names:
  NAME.json   [[5, 17, 2], [8, 8, 1, 0]]: a list of sequences, or one plain list
  NAME.u16    one stream of little-endian two-byte tokens, cut into sequences of
              --sequence tokens
  NAME.u32    the same with four bytes

Every token but the first of a sequence is predicted from the tokens before it.

--json has loss (mean, nats per token), perplexity, sequences, tokens (the
number of predicted tokens), dtype and log_probabilities: for each sequence,
log p of its second token, its third, and so on. It has bits_per_byte if the
bytes of the tokens are known: from the tokenizer.json in the checkpoint's
folder, or, without one, because a token is a byte.

--grads has the gradient of the loss for every parameter, under the parameter's
name in transformers; a tied head has no gradient of its own. In transformers:
model(input_ids=tokens, labels=tokens).loss.backward().

Example:
  ringside eval --init model/ --tokens tokens.json --json out.json \
                --grads gradients.safetensors --dtype fp64)";

struct Arguments {
  std::string init, tokens, json, grads, logits, dtype = "fp32";
  std::int64_t sequence = 0, batch = 8;
  int threads = 1;
  std::optional<double> memory_limit;
  DeviceOption device;
};

// The total loss in bits divided by the bytes of the predicted tokens. None if the bytes of a token
// are unknown: a model with fewer than 256 tokens does not read bytes, and the ids may come from a
// tokenizer that is not there.
std::optional<double> bits_per_byte(const std::optional<transformer::Vocabulary>& known,
                                    std::int64_t model_vocabulary,
                                    const std::vector<transformer::Tokens>& sequences,
                                    const transformer::Evaluation& evaluation) {
  if (!known || model_vocabulary < known->size()) return std::nullopt;
  const auto byte_counts = known->byte_counts();
  double bytes = 0;
  for (const transformer::Tokens& sequence : sequences) {
    for (std::size_t t = 1; t < sequence.size(); ++t) {
      const auto id = static_cast<std::size_t>(sequence[t]);
      if (id >= byte_counts.size() || byte_counts[id] == 0) return std::nullopt;
      bytes += byte_counts[id];
    }
  }
  return evaluation.loss / std::numbers::ln2 * static_cast<double>(evaluation.predicted_tokens) /
         bytes;
}

// The checkpoint's vocabulary. Only bits per byte need it, so an unreadable tokenizer is no error.
std::optional<transformer::Vocabulary> vocabulary_beside(const std::string& checkpoint,
                                                         std::FILE* out) {
  try {
    return transformer::Vocabulary::of_checkpoint(checkpoint);
  } catch (const Error& problem) {
    fmt::print(out, "no bits per byte: {}\n", problem.what());
    return std::nullopt;
  }
}

void write_json(const Arguments& args, const transformer::Evaluation& evaluation,
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

void write_logits(const Arguments& args, const transformer::Evaluation& evaluation) {
  std::vector<transformer::ArrayView> arrays;
  for (std::size_t s = 0; s < evaluation.logits.size(); ++s)
    arrays.push_back(transformer::view_of(std::to_string(s), evaluation.logits[s]));
  transformer::write_safetensors(args.logits, arrays);
}

void check_memory(const Arguments& args, const transformer::Config& config, autograd::DType dtype,
                  autograd::Device device, const std::vector<transformer::Tokens>& sequences) {
  std::size_t longest = 0, all = 0;
  for (const transformer::Tokens& sequence : sequences)
    longest = std::max(longest, sequence.size()), all += sequence.size();
  const double at_once = static_cast<double>(
      std::min<std::size_t>(sequences.size(), static_cast<std::size_t>(args.batch)));
  const double kept_logits = args.logits.empty() ? 0 : static_cast<double>(all);
  require_memory(
      transformer::memory_needed_to_evaluate(config, dtype, at_once, static_cast<double>(longest),
                                             !args.grads.empty(), kept_logits, device),
      1, args.memory_limit, "choose a smaller --batch, or a smaller model", device);
}

void evaluate(const Arguments& args) {
  begin_computing(args.threads);
  const transformer::Config config = transformer::load_config(args.init);
  const auto sequences =
      transformer::read_tokens(args.tokens, args.sequence > 0 ? args.sequence : config.sequence);
  transformer::check_sequences(sequences, config);
  const auto dtype = autograd::dtype_named(args.dtype);
  const auto device = device_from(args.device, dtype);
  check_memory(args, config, dtype, device, sequences);
  take_device(device);
  const transformer::Model model(config, dtype, device);
  transformer::load_parameters(args.init, model);
  const transformer::EvaluateOptions options{
      .gradients = !args.grads.empty(), .logits = !args.logits.empty(), .at_once = args.batch};
  const transformer::Evaluation evaluation = transformer::evaluate(model, sequences, options);
  const auto bits = bits_per_byte(vocabulary_beside(args.init, file_beside(args.json)),
                                  config.vocabulary, sequences, evaluation);
  if (!args.json.empty()) write_json(args, evaluation, bits);
  if (!args.grads.empty()) transformer::save_gradients(args.grads, model);
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
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand(
             "eval", "Evaluate a checkpoint on given tokens: loss, log-probabilities, gradients")
          ->footer(more);
  command
      ->add_option("--init", args->init,
                   "The checkpoint's folder: config.json and model.safetensors")
      ->type_name("DIR")
      ->required();
  command->add_option("--tokens", args->tokens, "The tokens; formats: see below")
      ->type_name("FILE")
      ->required();
  command->add_option("--json", args->json, "Write loss and log-probabilities to this file")
      ->type_name("FILE");
  command->add_option("--grads", args->grads, "Write all gradients to this file, as safetensors")
      ->type_name("FILE");
  command
      ->add_option("--logits", args->logits,
                   "Write the logits to this file, as safetensors: one array per sequence, named "
                   "by its number")
      ->type_name("FILE");
  command->add_option("--dtype", args->dtype, "Compute in fp32 or fp64 [fp32]")
      ->type_name("TYPE")
      ->check(one_of({"fp32", "fp64"}));
  command
      ->add_option(
          "--sequence", args->sequence,
          "Cut a stream of tokens into sequences of N tokens [as many as the model can attend to]")
      ->type_name("N")
      ->check(at_least_one("token"));
  command->add_option("--batch", args->batch, "Sequences in memory at once [8]")
      ->type_name("N")
      ->check(at_least_one("sequence"));
  add_memory_limit(*command, args->memory_limit);
  add_device_option(*command, args->device);
  command->add_option("--threads", args->threads, "Number of threads [1]")
      ->type_name("N")
      ->check(at_least_one("thread"));
  command->callback([args] { evaluate(*args); });
}

}  // namespace ringside::cli
