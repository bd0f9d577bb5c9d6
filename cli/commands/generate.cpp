// `ringside generate`: continues a text with a checkpoint.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/printable.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/one_of.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/product_calibration.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/inference/generation.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more = R"(
Prints the beginning of the text and its continuation. Bytes that are not text
appear as \xNN. The same seed, model and beginning give the same text. Tokens
are those of the tokenizer.json in the checkpoint's folder; without one, a
token is a byte.

Example:
  ringside train --steps 300 --save model/
  ringside generate --init model/ --prompt 'template <' --tokens 300 --top-k 20)";

struct Arguments {
  std::string init, dtype = "fp32";
  std::optional<std::string> prompt, prompt_file;
  std::int64_t tokens = 200;
  int threads = 1;
  std::optional<double> memory_limit;
  DeviceOption device;
  transformer::SampleOptions sample;
};

std::string beginning_from(const Arguments& args) {
  if (!args.prompt_file) return args.prompt.value_or("\n");
  std::ifstream file(*args.prompt_file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  require(file.is_open() && !file.bad(), "cannot read the beginning of the text from {}",
          *args.prompt_file);
  return text;
}

void require_fits(const transformer::Vocabulary& vocabulary, const transformer::Config& config) {
  require(vocabulary.is_bytes() || vocabulary.size() <= config.vocabulary,
          "the tokenizer {} has ids up to {}, but the model's vocabulary is 0 to {}: it belongs to "
          "another model",
          vocabulary.name(), vocabulary.size() - 1, config.vocabulary - 1);
}

std::vector<std::int32_t> tokens_of(const std::string& text,
                                    const transformer::Vocabulary& vocabulary,
                                    const transformer::Config& config) {
  const auto tokens = vocabulary.encode_prompt(text);
  const auto largest = *std::max_element(tokens.begin(), tokens.end());
  require(largest < config.vocabulary,
          "the beginning has the byte {}, but the model's vocabulary is 0 to {}: it was not "
          "trained on bytes",
          largest, config.vocabulary - 1);
  return tokens;
}

void generate(const Arguments& args) {
  begin_computing(args.threads);
  const transformer::Config config = transformer::load_config(args.init);
  const auto vocabulary = transformer::Vocabulary::of_checkpoint(args.init);
  require_fits(vocabulary, config);
  std::vector<std::int32_t> tokens = tokens_of(beginning_from(args), vocabulary, config);
  const auto dtype = autograd::dtype_named(args.dtype);
  const auto device = device_from(args.device, dtype);
  require_memory(
      transformer::memory_needed_to_generate(config, dtype, static_cast<double>(tokens.size())), 1,
      args.memory_limit, "choose a smaller model", device);
  take_device(device);
  const transformer::Model model(config, dtype, device);
  transformer::load_parameters(args.init, model);
  const auto text = transformer::generate(model, tokens, args.tokens, args.sample);
  tokens.insert(tokens.end(), text.begin(), text.end());
  fmt::print("{}\n", printable(vocabulary.bytes_of(tokens)));
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("generate", "Continue a text with a checkpoint")->footer(more);
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return command->add_option(name, value, text)->type_name(type);
  };
  option("--init", args->init, "DIR", "The checkpoint's folder: config.json and model.safetensors")
      ->required();
  CLI::Option* prompt =
      option("--prompt", args->prompt, "TEXT", "The beginning of the text [an empty line]");
  option("--prompt-file", args->prompt_file, "FILE", "Read the beginning from this file instead")
      ->excludes(prompt);
  option("--tokens", args->tokens, "N", "Tokens to generate [200]")
      ->check(CLI::NonNegativeNumber.description(""));
  option("--temperature", args->sample.temperature, "T",
         "Below 1 favours likely tokens; 0: the likeliest only [0.8]")
      ->check(CLI::NonNegativeNumber.description(""));
  option("--top-k", args->sample.top_k, "K", "Choose from the K likeliest tokens; 0: from all [0]")
      ->check(CLI::NonNegativeNumber.description(""));
  option("--seed", args->sample.seed, "N", "Seed of the random choices [0]");
  option("--dtype", args->dtype, "TYPE", "Compute in fp32 or fp64 [fp32]")
      ->check(one_of({"fp32", "fp64"}));
  add_memory_limit(*command, args->memory_limit);
  add_device_option(*command, args->device);
  option("--threads", args->threads, "N", "Number of threads [1]")->check(at_least_one("thread"));
  command->callback([args] { generate(*args); });
}

}  // namespace ringside::cli
