// `ringside train`: trains a transformer on text, on one rank or many.

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/environment.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/one_of.hpp"
#include "cli/report/numbers.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/go_on.hpp"
#include "cli/training/interrupt.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/mesh/mesh_strategy.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "cli/training/same_options.hpp"
#include "cli/training/train_arguments.hpp"
#include "cli/training/training_run.hpp"
#include "cli/views/help_formatter.hpp"
#include "collectives/process_group.hpp"
#include "pipeline_parallel/generators/catalogue.hpp"

namespace ringside::cli {
namespace {

// A step and a checkpoint of a large model take minutes. Who cannot wait sends a second signal.
constexpr Seconds time_to_save{600};

constexpr const char* more = R"(
Examples:
  ringside train -n 4 --steps 500
      four processes; the text is the C++ standard library
  ringside train -n 2 --parallel naive --data notes/ a.txt
      your own text, another parallel strategy
  ringside train -n 4 --parallel zero3 --model lab
      parameters, gradients and optimizer state sharded over four ranks
  ringside train -n 4 --mesh dp=2,tp=2 --parallel bucketed
      matrices divided over two ranks, the batch over two such pairs
  ringside train -n 4 --mesh pp=2,tp=2 --schedule 1f1b --micro-batches 4
      layers divided over two stages, matrices over two ranks of each stage
  ringside train -n 4 --backend threads --steps 2
      four ranks in one process, for a debugger
  ringside tokenize --train 10000 --save tokenizer/
  ringside train --tokenizer tokenizer/ --model lab
      tokens of a tokenizer instead of bytes

Parallel strategies: naive, flat, overlap and bucketed keep everything on every
rank and average gradients. zero1_broadcast and zero1 also shard the optimizer
state, zero2 also the gradients, zero3 (FSDP) also the parameters. All write
the same checkpoints, and each can resume from the checkpoint of any other.

The global batch of a step does not depend on the number of ranks. To compare
runs on 1, 2 and 4 ranks, use --dump.

Each row of --metrics has step, loss (nats per token), bits_per_byte,
tokens_per_second, step_seconds, communication_seconds, gradient_norm (before
clipping) and lr. A validation adds a row with step and
validation_bits_per_byte.

A token is a byte, or a token of --tokenizer. Bits per byte is the total loss
in bits divided by the bytes of the predicted tokens, so it compares runs with
different tokenizers. --save writes the tokenizer beside the model, where
--init, --resume, `ringside generate` and `ringside eval` find it.

Ctrl-C (or SIGTERM) ends a run with --save after the step that is under way,
saves it, and prints the command that continues it; a second Ctrl-C ends it at
once. --save-every N saves a run that may be killed. A run continues with
--resume DIR and the same --data. On as many ranks and threads as before, the
result is the same to the bit; otherwise only rounding differs.)";

CLI::Validator not_negative() {
  const auto check = [](std::string& text) -> std::string {
    double number = 0;
    const bool fits = CLI::detail::lexical_cast(text, number) && number >= 0;
    return fits ? "" : "a number of at least 0 is expected, not " + text;
  };
  return CLI::Validator(check, "");
}

std::unique_ptr<transformer::ParallelStrategy> strategy_of(const TrainingPlan& plan,
                                                           collectives::ProcessGroup& group) {
  if (!plan.mesh) return make_strategy(plan.strategy, group, plan.bucket_mb);
  return std::make_unique<MeshStrategy>(group, *plan.mesh, plan.config, plan.strategy,
                                        plan.bucket_mb);
}

void train_as_rank(TrainingPlan plan, const DeviceOption& device,
                   collectives::ProcessGroup& group) {
  require_same_options(shared_options(plan, device), group);
  take_device(plan.device);
  join_device(device, plan.device, group);
  plan.backend = group.backend_name();
  Recording recording = recording_of(plan);
  run_training(plan, group, strategy_of(plan, group), recording);
  recording.write(group,
                  fmt::format("Training {} on {}", plan.model_name, counted(group.size(), "rank")),
                  facts_of(plan, group.size()));
}

void train(const TrainArguments& args) {
  TrainingPlan plan;
  RanksOption ranks_option = args.ranks;
  if (args.mesh)
    ranks_option.place = [shape = parallel::MeshShape(*args.mesh)](int rank) {
      return shape.describe(rank);
    };
  if (!args.save.empty() || args.resume) ranks_option.grace_after_signal = time_to_save;
  const auto prepare = [&](int ranks, int ranks_here) {
    plan = plan_from(args, ranks, ranks_here);
    check_memory(plan, ranks, ranks_here);
    if (environment("RANK")) return;  // the process that started the ranks has checked the rest
    check_plan(plan, ranks);
    prepare_outputs(plan);
  };
  run_on_ranks(
      ranks_option,
      [&](collectives::ProcessGroup& group, int) { train_as_rank(plan, args.device, group); },
      prepare);
  if (const int signal = interrupted_by()) throw Exit{128 + signal};
}

CLI::Validator strategy_name() {
  const auto known = one_of(strategy_names(), {{"fsdp", "zero3"}, {"ddp", "bucketed"}});
  const auto check = [known](std::string& text) {
    return is_strategy_library(text) ? "" : known(text);
  };
  return CLI::Validator(check, "");
}

void add_model_options(CLI::App& command, TrainArguments& args) {
  const auto option = [&](const char* name, auto& value, const char* type,
                          const std::string& text) {
    return command.add_option(name, value, text)->type_name(type)->group("Model");
  };
  option("--model", args.model, "NAME",
         fmt::format("A named size: {} [tiny]", fmt::join(transformer::config_names(), ", ")));
  option("--d-model", args.d_model, "N",
         "Width of the model. It overrides the named size, as do "
         "the sizes below");
  option("--layers", args.layers, "N", "Number of blocks");
  option("--heads", args.heads, "N", "Query heads");
  option("--kv-heads", args.kv_heads, "N", "Key and value heads [as many as query heads]");
  option("--d-ff", args.d_ff, "N", "Width of the feed-forward layers");
  option("--vocabulary", args.vocabulary, "N",
         "Number of tokens; bytes need 256 [tiny: as many as --tokenizer has]");
  option("--sequence", args.sequence, "N",
         "Tokens per sequence: the most that the model can attend to");
  command.add_flag("--tied-head", args.tied_head, "Share the embedding's matrix with the head")
      ->group("Model");
  option("--init", args.init, "DIR",
         "Start from the parameters in this folder: config.json and model.safetensors");
  option("--resume", args.resume, "DIR",
         "Continue the run that was saved in this folder, and save there. Options that are not "
         "given keep their values");
  option("--dtype", args.dtype, "TYPE",
         "fp32, fp64 or bf16. bf16 stores weights, activations and gradients in 16 bits; sums and "
         "the optimizer use fp32 [fp32]")
      ->check(one_of({"fp32", "fp64", "bf16"}));
}

void add_rank_options(CLI::App& command, TrainArguments& args) {
  add_ranks_option(command, args.ranks);
  add_backend_option(command, args.ranks);
  add_link_option(command);
  for (const char* name : {"--ranks", "--backend", "--link"})
    command.get_option(name)->group("Ranks");
  command
      .add_option("--parallel", args.strategy,
                  fmt::format("The parallel strategy: {}, or one of your own: a file NAME.so [one "
                              "rank: single; else flat]",
                              fmt::join(strategy_names(), ", ")))
      ->type_name("NAME")
      ->check(strategy_name())
      ->group("Ranks");
  command
      .add_option("--mesh", args.mesh,
                  "Ranks in a grid, such as pp=2,dp=2,tp=2: tp ranks divide every matrix (tensor "
                  "parallel), pp ranks the layers (pipeline parallel), dp ranks the batch, with "
                  "--parallel among them. The last axis varies fastest [all ranks are dp]")
      ->type_name("AXES")
      ->group("Ranks");
  command
      .add_flag("--sequence-parallel", args.sequence_parallel,
                "The tp ranks of --mesh also divide the tokens of each sequence between matrices: "
                "less memory, the same bytes on the wire")
      ->group("Ranks");
  command
      .add_option("--schedule", args.schedule,
                  fmt::format("The order of micro-batches in the pipeline of --mesh: {}, or "
                              "csv:FILE; `ringside step pipeline` draws them [1f1b]",
                              pipeline_parallel::schedule_names()))
      ->type_name("NAME")
      ->group("Ranks");
  command
      .add_option("--stages-per-rank", args.stages_per_rank,
                  "Pipeline stages on each pp rank, with --schedule interleaved [2]")
      ->type_name("N")
      ->check(at_least_one("stage"))
      ->group("Ranks");
  command
      .add_option("--bucket-mb", args.bucket_mb,
                  "Bucket size of bucketed, zero1_broadcast, zero1 and zero2, in 10^6 bytes [25]")
      ->type_name("MB")
      ->check(CLI::PositiveNumber.description(""))
      ->group("Ranks");
  command.add_option("--threads", args.threads, "Threads of each rank [cores divided by ranks]")
      ->type_name("N")
      ->check(at_least_one("thread"))
      ->group("Ranks");
  add_device_option(command, args.device)->group("Ranks");
  add_device_backend_option(command, args.device)->group("Ranks");
  add_memory_limit(command, args.memory_limit_gb)->group("Ranks");
}

void add_training_options(CLI::App& command, TrainArguments& args) {
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return command.add_option(name, value, text)->type_name(type)->group("Training");
  };
  option("--data", args.data, "PATH",
         "Text files and directories of text files [the C++ standard library headers]");
  option("--tokenizer", args.tokenizer, "PATH",
         "A tokenizer.json, or a folder with one; see `ringside tokenize` [the tokenizer of --init "
         "or --resume, else bytes]");
  option("--steps", args.steps, "N", "Number of steps [100]");
  option("--stop-at", args.stop_at, "N",
         "Stop after step N, as if interrupted: the learning rate still falls until --steps")
      ->check(at_least_one("step"));
  option("--batch", args.batch, "N",
         "Sequences per step over all ranks [16, or the next multiple of the ranks]");
  option("--accumulate,--micro-batches", args.accumulate, "K",
         "Split each data rank's batch into K micro-batches: less memory, the same gradients; and "
         "what a pipeline needs to keep its stages busy [1]")
      ->check(at_least_one("micro-batch"));
  command
      .add_flag("--checkpoint-activations", args.checkpoint_activations,
                "Recompute each block in backward: less memory, a third more time, the same bits")
      ->group("Training");
  option("--optimizer", args.optimizer, "NAME", "sgd or adamw [adamw]")
      ->check(one_of({"sgd", "adamw"}));
  option("--lr", args.learning_rate, "RATE",
         "Peak learning rate [adamw: 3e-3 for width 128, less for wider models; sgd: 0.1]");
  option("--min-lr", args.min_learning_rate, "RATE", "Learning rate at the end [a tenth of --lr]");
  option("--warmup", args.warmup, "N",
         "Steps until the peak learning rate [a tenth of --steps, at most 100]");
  option("--clip", args.clip, "NORM", "Largest norm of the gradient; 0: no limit [1]");
  option("--weight-decay", args.weight_decay, "X",
         "Weight decay of matrices, except the embedding [0.1]");
  option("--seed", args.seed, "N", "Seed of the initial parameters, batches and sample [0]");
  option("--eval-every,--validate-every", args.validate_every, "N",
         "Validate on held-out text every N steps; 0: only at the end [0]");
  option("--eval-batches", args.eval_batches, "N",
         "Batches of held-out text per validation [as many as 64 sequences fill]")
      ->check(at_least_one("batch"));
}

void add_output_options(CLI::App& command, TrainArguments& args) {
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return command.add_option(name, value, text)->type_name(type)->group("Output");
  };
  option("--metrics", args.metrics, "FILE", "Write a JSON line for each step");
  option("--trace", args.trace, "FILE",
         "Write a trace of a few steps on every rank, for ui.perfetto.dev or chrome://tracing");
  option("--trace-steps", args.trace_steps, "A-B", "The steps of --trace and --report [3-5]");
  option("--report", args.report, "FILE",
         "Write an HTML page at the end: tracks of every rank, memory over a step, loss");
  option("--dump", args.dump, "DIR",
         "Write gradients and parameters after every step: DIR/step0001.safetensors and so on");
  option("--save", args.save, "DIR",
         "Save the model at the end: config.json and model.safetensors in the format of Hugging "
         "Face's Llama, and the state for --resume");
  command
      .add_flag("--overwrite", args.overwrite,
                "Let --save replace the model of another run that is in its folder")
      ->group("Output");
  option("--save-every", args.save_every, "N", "Save after every N steps, too")
      ->check(at_least_one("step"));
  option("--sample", args.sample_tokens, "N", "Generate and print N tokens at the end [0]")
      ->check(not_negative());
  option("--sample-every", args.sample_every, "N",
         "Print a sample before the first step, and after every N steps, too")
      ->check(at_least_one("step"));
  option("--temperature", args.sample.temperature, "T",
         "Temperature of the sample; below 1 favours likely tokens; 0: the likeliest only [0.8]")
      ->check(not_negative());
  option("--top-k", args.sample.top_k, "K", "Sample from the K likeliest tokens; 0: from all [0]")
      ->check(not_negative());
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto args = std::make_shared<TrainArguments>();
  CLI::App* command =
      app.add_subcommand("train", "Train a transformer on text, on one rank or many")->footer(more);
  add_rank_options(*command, *args);
  add_model_options(*command, *args);
  add_training_options(*command, *args);
  add_output_options(*command, *args);
  // The last one of a repeated option counts, so that a script can put defaults before the user's
  // options.
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() == 1) option->take_last();
  }
  set_short_help(*command, {"--ranks", "--parallel", "--mesh", "--model", "--data", "--steps",
                            "--batch", "--save", "--resume", "--report", "--sample"});
  command->callback([args, command] {
    const std::string folder = args->save.empty() ? args->resume.value_or("") : args->save;
    const bool outer_launcher = environment("RANK") && !args->ranks.count;
    args->go_on =
        (outer_launcher ? "under the same launcher, " : "") + command_to_resume(*command, folder);
    train(*args);
  });
}

}  // namespace ringside::cli
