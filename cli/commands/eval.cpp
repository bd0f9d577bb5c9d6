// `ringside eval`: what a checkpoint makes of given tokens, in figures that can be held against
// another framework's.

#include <algorithm>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <cmath>

#include "autograd/kernels/parallel.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/report/json_file.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/memory_check.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/checkpoint/step_dump.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/inference/evaluation.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more =
    "\nFiles of tokens, known by their names:\n"
    "  NAME.json   [[5, 17, 2], [8, 8, 1, 0]]: a list of sequences, or one as a plain list\n"
    "  NAME.u16    one stream of tokens of two bytes, little-endian, cut into sequences of "
    "--sequence tokens\n"
    "  NAME.u32    the same with four bytes\n"
    "\n"
    "Every token but a sequence's first is foretold from those before it. --json has loss (mean, "
    "nats per token), perplexity, sequences,\n"
    "tokens (how many were foretold), dtype and log_probabilities: for each sequence, log p of its "
    "second token, its third, and so on.\n"
    "bits_per_byte is there too where it is known what bytes the tokens stand for: from the "
    "tokenizer.json in the checkpoint's folder; without\n"
    "one a token is a byte.\n"
    "--grads has the gradient of that loss for every parameter, under the parameter's name in "
    "transformers; a tied head has none of its\n"
    "own. transformers computes the same with model(input_ids=tokens, "
    "labels=tokens).loss.backward().\n"
    "\n"
    "Example:\n"
    "  ringside eval --init model/ --tokens tokens.json --json out.json --grads "
    "gradients.safetensors --dtype fp64";

struct Arguments {
  std::string init, tokens, json, grads, logits, dtype = "fp32";
  std::int64_t sequence = 0, batch = 8;
  int threads = 1;
  std::optional<double> memory_limit;
  DeviceOption device;
};

// All nats by all bytes of the tokens that were foretold. Nothing where a token's bytes are not
// known: a model of fewer tokens than there are bytes does not read bytes, and ids may come from a
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

// What the tokens stand for. It is not needed for anything else, so a tokenizer that Ringside does
// not read is no reason to stop.
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
                                             !args.grads.empty(), kept_logits),
      1, args.memory_limit, "choose a smaller --batch, or a smaller model", device);
}

void evaluate(const Arguments& args) {
  autograd::set_threads(args.threads);
  const transformer::Config config = transformer::load_config(args.init);
  const auto sequences =
      transformer::read_tokens(args.tokens, args.sequence > 0 ? args.sequence : config.sequence);
  transformer::check_sequences(sequences, config);
  const auto dtype = args.dtype == "fp64" ? autograd::DType::fp64 : autograd::DType::fp32;
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
      "loss {:.6f} nats per token, perplexity {:.3f}{}: {} tokens foretold in {} sequences, {}\n",
      evaluation.loss, std::exp(evaluation.loss),
      bits ? fmt::format(", {:.4f} bits per byte", *bits) : "", evaluation.predicted_tokens,
      sequences.size(), args.dtype);
}

}  // namespace

void add_eval_command(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand(
             "eval",
             "Say what a checkpoint makes of given tokens: loss, log-probabilities, gradients")
          ->footer(more);
  command
      ->add_option("--init", args->init,
                   "The checkpoint's folder: config.json and model.safetensors")
      ->type_name("DIR")
      ->required();
  command->add_option("--tokens", args->tokens, "The tokens, see below")
      ->type_name("FILE")
      ->required();
  command->add_option("--json", args->json, "Write loss and log-probabilities")->type_name("FILE");
  command->add_option("--grads", args->grads, "Write every gradient, as safetensors")
      ->type_name("FILE");
  command
      ->add_option(
          "--logits", args->logits,
          "Write the logits, as safetensors: an array for each sequence, named by its number")
      ->type_name("FILE");
  command->add_option("--dtype", args->dtype, "Compute in fp32 or fp64 (fp32)")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"fp32", "fp64"}).description(""));
  command
      ->add_option("--sequence", args->sequence,
                   "Cut a stream of tokens into sequences of so many (all that the model can see)")
      ->type_name("N")
      ->check(at_least_one("token"));
  command->add_option("--batch", args->batch, "Most sequences in memory at once (8)")
      ->type_name("N")
      ->check(at_least_one("sequence"));
  add_memory_limit(*command, args->memory_limit);
  add_device_option(*command, args->device);
  command->add_option("--threads", args->threads, "Threads to compute on (1)")
      ->type_name("N")
      ->check(at_least_one("thread"));
  command->callback([args] { evaluate(*args); });
}

}  // namespace ringside::cli
