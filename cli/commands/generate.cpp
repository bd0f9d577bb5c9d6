// `ringside generate`: continues a text with a checkpoint.

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/read_file.hpp"
#include "base/text/read_number.hpp"
#include "cli/commands/train/unchanged_checkpoint.hpp"
#include "cli/options/command.hpp"
#include "cli/options/device_option.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"
#include "cli/options/rank_options.hpp"
#include "cli/program/other_programs.hpp"
#include "training/memory_check.hpp"
#include "training/product_calibration.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/inference/generation.hpp"

namespace ringside::cli {
namespace {

struct GenerateArguments {
  std::string init, dtype = "fp32";
  std::optional<std::string> prompt, prompt_file, prompt_tokens;
  std::int64_t tokens = 200;
  int threads = 1;
  std::optional<double> memory_limit;
  bool accept_changes = false;
  DeviceOption device;
  transformer::SampleOptions sample;
};

std::string beginning_from(const GenerateArguments& args) {
  if (!args.prompt_file) return args.prompt.value_or("\n");
  return read_file(*args.prompt_file, "the beginning of the text from");
}

// "464,262,1001" as ids; white space separates them, too.
std::vector<std::int32_t> ids_from(std::string text) {
  std::ranges::replace(text, ',', ' ');
  std::istringstream words(text);
  std::vector<std::int32_t> ids;
  bool are_ids = true;
  for (std::string word; words >> word;) are_ids = are_ids && read_number(word, ids.emplace_back());
  require(are_ids && !ids.empty(),
          "--prompt-tokens needs ids with commas between them, such as 464,262,1001, not '{:.60}'",
          text);
  return ids;
}

std::vector<std::int32_t> tokens_from(const GenerateArguments& args,
                                      const transformer::Config& config) {
  std::vector<std::int32_t> tokens;
  if (args.prompt_tokens) {
    tokens = ids_from(*args.prompt_tokens == "-" ? read_file("/dev/stdin", "the ids from")
                                                 : *args.prompt_tokens);
  } else {
    const std::string text = beginning_from(args);
    require(!text.empty(), "a prompt needs at least one byte");
    for (const char byte : text) tokens.push_back(static_cast<std::uint8_t>(byte));
  }
  const auto [least, largest] = std::ranges::minmax_element(tokens);
  require(!args.prompt_tokens || (*least >= 0 && *largest < config.vocabulary),
          "the beginning has the token {}, but the model's vocabulary is 0 to {}",
          *least < 0 ? *least : *largest, config.vocabulary - 1);
  require(*largest < config.vocabulary,
          "the beginning has the byte {}, but the model's vocabulary is 0 to {}: it was not "
          "trained on bytes",
          *largest, config.vocabulary - 1);
  return tokens;
}

void generate(const GenerateArguments& args) {
  // Python encodes the text, and calls this command again with tokens.
  if (!args.prompt_tokens && std::filesystem::exists(args.init + "/tokenizer.json"))
    become_python("generate");
  training::begin_computing(args.threads);
  const transformer::Config config = transformer::load_config(args.init);
  std::vector<std::int32_t> tokens = tokens_from(args, config);
  const auto dtype = autograd::dtype_named(args.dtype);
  const auto device = device_from(args.device, dtype);
  training::require_memory(
      training::memory_to_generate(config, dtype, static_cast<std::int64_t>(tokens.size())), 1,
      args.memory_limit, "choose a smaller model", device);
  take_device(device);
  const transformer::Model model(config, dtype, device);
  require_unchanged(args.init, args.accept_changes);
  transformer::load_parameters(args.init, model);
  const auto text = transformer::generate(model, tokens, args.tokens, args.sample);
  tokens.insert(tokens.end(), text.begin(), text.end());
  fmt::print("{}\n", transformer::text_of(tokens, !args.prompt_tokens));
}

}  // namespace

void add_generate_command(CLI::App& app) {
  const auto [option, args] =
      add_command(app, "generate", "Continue a text with a checkpoint", generate);
  option("--init DIR", args.init, "The checkpoint's folder: config.json and model.safetensors")
      .required();
  option.flag("--accept-changes", args.accept_changes,
              "Use the checkpoint although its files were changed after it was saved");
  const DeclaredOption prompt =
      option("--prompt TEXT", args.prompt, "The beginning of the text [an empty line]");
  const DeclaredOption file =
      option("--prompt-file FILE", args.prompt_file, "Read the beginning from this file instead")
          .excludes(prompt);
  option("--prompt-tokens IDS", args.prompt_tokens,
         "The beginning as token ids, 464,262,1001, and print ids; - reads them from standard "
         "input")
      .excludes(prompt)
      .excludes(file);
  option("--tokens N", args.tokens, "Tokens to generate [200]", not_negative());
  option("--temperature T", args.sample.temperature,
         "Below 1 favours likely tokens; 0: the likeliest only [0.8]", not_negative());
  option("--top-k K", args.sample.top_k, "Choose from the K likeliest tokens; 0: from all [0]",
         not_negative());
  option("--seed N", args.sample.seed, "Seed of the random choices [0]");
  option("--dtype TYPE", args.dtype, "Compute in fp32 or fp64 [fp32]", one_of({"fp32", "fp64"}));
  add_memory_limit(option, args.memory_limit);
  add_device_option(option, args.device);
  option("--threads N", args.threads, "Number of threads [1]", at_least_one("thread"));
}

}  // namespace ringside::cli
