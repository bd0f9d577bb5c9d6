// `ringside step tensor`: draws one transformer block under tensor parallel.

#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.hpp"
#include "cli/one_of.hpp"
#include "cli/report/json_file.hpp"
#include "cli/views/tensor_block.hpp"

namespace ringside::cli {

namespace {

struct TensorOptions {
  std::string model = "lab";
  int ranks = 2;
  std::int64_t batch = 1;
  std::int64_t sequence = 0;  // 0: as long as the model allows
  std::string dtype = "fp32";
  bool sequence_parallel = false;
  std::string json;
};

void draw(const TensorOptions& options) {
  TensorBlock block{.model = options.model,
                    .config = transformer::named_config(options.model),
                    .ranks = options.ranks,
                    .batch = options.batch,
                    .tokens = options.sequence,
                    .dtype = autograd::dtype_named(options.dtype),
                    .sequence_parallel = options.sequence_parallel};
  if (block.tokens == 0) block.tokens = block.config.sequence;
  require_divisible(block);
  draw_block(stream_beside(options.json), block);
  if (!options.json.empty()) write_json_file(options.json, json_of(block));
}

constexpr const char* more = R"(
f and g are the two functions between which the matrices are divided: f does
nothing in forward and adds up gradients in backward, g the reverse.
docs/tensor_parallel.md explains the picture.

Examples:
  ringside step tensor -n 2
  ringside step tensor -n 4 --model large --sequence-parallel --dtype bf16)";

}  // namespace

void add_step_tensor_command(CLI::App& step) {
  const auto options = std::make_shared<TensorOptions>();
  CLI::App* command =
      step.add_subcommand("tensor",
                          "Draw a transformer block over several ranks: matrices and calls")
          ->footer(more);
  command->add_option("-n,--ranks", options->ranks, "Number of ranks, 2 to 8 [2]")
      ->type_name("N")
      ->check(CLI::Range(2, 8).description(""));
  command
      ->add_option(
          "--model", options->model,
          fmt::format("A named size: {} [lab]", fmt::join(transformer::config_names(), ", ")))
      ->type_name("NAME");
  command->add_option("--batch", options->batch, "Sequences of a micro-batch [1]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20).description(""));
  command
      ->add_option("--sequence", options->sequence,
                   "Tokens per sequence [the longest of the model]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20).description(""));
  command->add_option("--dtype", options->dtype, "fp32, fp64 or bf16 [fp32]")
      ->type_name("TYPE")
      ->check(one_of({"fp32", "fp64", "bf16"}));
  command->add_flag("--sequence-parallel", options->sequence_parallel,
                    "Outside of the divided matrices each rank has only its tokens");
  command
      ->add_option("--json", options->json,
                   "Write matrices, calls and bytes to this file; - writes them to standard output")
      ->type_name("FILE");
  command->callback([options] { draw(*options); });
}

}  // namespace ringside::cli
