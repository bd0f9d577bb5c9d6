// `ringside step tensor`: draws one transformer block under tensor parallel.

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/options/command.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/schedule/tensor_block.hpp"

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

}  // namespace

void add_step_tensor_command(CLI::App& step) {
  const auto [option, args] = add_command(
      step, "tensor", "Draw a transformer block over several ranks: matrices and calls", draw);
  option("-n,--ranks N", args.ranks, "Number of ranks, 2 to 8 [2]", in_range(2, 8));
  option("--model NAME", args.model,
         fmt::format("A named size: {} [lab]", fmt::join(transformer::config_names(), ", ")));
  option("--batch N", args.batch, "Sequences of a micro-batch [1]", in_range(1, 1 << 20));
  option("--sequence N", args.sequence, "Tokens per sequence [the longest of the model]",
         in_range(1, 1 << 20));
  option("--dtype TYPE", args.dtype, "fp32, fp64 or bf16 [fp32]", one_of({"fp32", "fp64", "bf16"}));
  option.flag("--sequence-parallel", args.sequence_parallel,
              "Outside of the divided matrices each rank has only its tokens");
  add_json_option(option, args.json);
}

}  // namespace ringside::cli
