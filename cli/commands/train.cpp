// `ringside train`: trains a transformer on text, on one rank or many.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/environment.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "cli/training/training_run.hpp"
#include "collectives/process_group.hpp"
#include "ddp/bucketed.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

namespace ringside::cli {
namespace {

using transformer::Config;
using transformer::OptimizerKind;
using transformer::Vocabulary;

constexpr const char* more =
    "\nExamples:\n"
    "  ringside train -n 4 --steps 500                           four processes, the C++ standard "
    "library as text\n"
    "  ringside train -n 2 --parallel naive --data notes/ a.txt  other text, another form of data "
    "parallelism\n"
    "  ringside train -n 4 --parallel zero3 --model lab          parameters, gradients and "
    "optimizer state in four parts\n"
    "  ringside train -n 4 --backend threads --steps 2           four ranks in one process, for a "
    "debugger\n"
    "  ringside tokenize --train 10000 --save tokenizer/ && ringside train --tokenizer tokenizer/ "
    "--model lab\n"
    "\n"
    "Of the forms, naive to bucketed keep everything on every rank and average gradients; "
    "zero1_broadcast and zero1 share out the optimizer's\n"
    "state, zero2 gradients too, zero3 (FSDP) parameters too. A checkpoint is the same from all, "
    "and any of them goes on with it.\n"
    "\n"
    "Every step draws the same global batch whatever the number of ranks: hold runs with 1, 2 and "
    "4 ranks against each other\n"
    "with --dump. Each row of --metrics has step, loss (nats per token), bits_per_byte, "
    "tokens_per_second, step_seconds,\n"
    "communication_seconds, gradient_norm (before clipping) and lr; an examination adds a row with "
    "step and\n"
    "validation_bits_per_byte. Weight decay spares norms and the embedding.\n"
    "\n"
    "A token is a byte, or what --tokenizer makes of the text. Bits per byte is the loss by the "
    "bytes that the foretold tokens stand for, and\n"
    "so compares runs with different tokenizers. --save puts the tokenizer beside the model; "
    "--init, --resume, `ringside generate` and\n"
    "`ringside eval` find it there.\n"
    "\n"
    "A run that is interrupted and gone on with (--save DIR --save-every N, then --resume DIR) "
    "gives the same bits as one that was not,\n"
    "on as many ranks and threads as before; on others, the same but for rounding. Give it the "
    "same --data.";

// What the command line says. Where it says nothing, plan_from() decides from the rest.
struct Arguments {
  RanksOption ranks;
  DeviceOption device;
  std::optional<std::string> model, init, resume, strategy, dtype, optimizer, tokenizer;
  std::optional<std::int64_t> d_model, layers, heads, kv_heads, d_ff, vocabulary, sequence, steps,
      stop_at, batch, accumulate, warmup;
  std::optional<std::int64_t> eval_batches, save_every;
  std::optional<double> learning_rate, min_learning_rate, clip, weight_decay;
  std::optional<std::uint64_t> seed;
  std::optional<int> threads;
  double bucket_mb = ddp::Bucketed::default_bucket_mb;
  bool tied_head = false, checkpoint_activations = false;
  std::vector<std::string> data;
  std::string metrics, dump, save, trace, trace_steps, report;
  std::int64_t validate_every = 0;
  std::optional<double> memory_limit_gb;
  std::int64_t sample_tokens = 0;
  transformer::SampleOptions sample;
};

CLI::Validator not_negative() {
  const auto check = [](std::string& text) -> std::string {
    double number = 0;
    const bool fits = CLI::detail::lexical_cast(text, number) && number >= 0;
    return fits ? "" : "a number from 0 on is expected, not " + text;
  };
  return CLI::Validator(check, "");
}

bool names_sizes(const Arguments& args) {
  return args.d_model || args.layers || args.heads || args.kv_heads || args.d_ff ||
         args.vocabulary || args.tied_head;
}

// What the text is read in: the tokenizer that is named, or else the one that lies beside the
// parameters that the run starts from.
std::shared_ptr<const Vocabulary> vocabulary_from(const Arguments& args) {
  if (args.tokenizer) return std::make_shared<Vocabulary>(Vocabulary::load(*args.tokenizer));
  if (args.resume) return std::make_shared<Vocabulary>(Vocabulary::of_checkpoint(*args.resume));
  return std::make_shared<Vocabulary>(args.init ? Vocabulary::of_checkpoint(*args.init)
                                                : Vocabulary());
}

void require_fits(const Vocabulary& vocabulary, const Config& config) {
  if (vocabulary.is_bytes())
    require(config.vocabulary >= 256,
            "a token here is a byte, so the vocabulary must be at least 256, but it is {}",
            config.vocabulary);
  require(vocabulary.size() <= config.vocabulary,
          "the tokenizer {} has {} tokens, but the model's vocabulary is {}: take another "
          "tokenizer, or a model with --vocabulary {}",
          vocabulary.name(), vocabulary.size(), config.vocabulary, vocabulary.size());
}

Config config_from(const Arguments& args, const Vocabulary& vocabulary) {
  if (args.init || args.resume) {
    if (args.model || names_sizes(args))
      throw UsageError(
          fmt::format("{} brings the model's sizes with it: leave out --model and the sizes",
                      args.init ? "--init" : "--resume"));
    return transformer::load_config(args.init ? *args.init : *args.resume);
  }
  Config config = transformer::named_config(args.model.value_or("tiny"));
  config.d_model = args.d_model.value_or(config.d_model);
  config.layers = args.layers.value_or(config.layers);
  config.heads = args.heads.value_or(config.heads);
  config.kv_heads = args.kv_heads.value_or(config.heads);
  config.d_ff = args.d_ff.value_or(config.d_ff);
  if (config.vocabulary == Vocabulary().size())
    config.vocabulary = vocabulary.size();  // a size for bytes, whatever a token is
  config.vocabulary = args.vocabulary.value_or(config.vocabulary);
  config.sequence = args.sequence.value_or(config.sequence);
  config.tied_head = args.tied_head;
  config.initialise_seed = args.seed.value_or(0);
  return config;
}

// Wider models learn more slowly: 3e-3 for `tiny`, 2.4e-4 for `xl`.
double usual_learning_rate(OptimizerKind optimizer, const Config& config) {
  return optimizer == OptimizerKind::sgd
             ? 0.1
             : std::min(3e-3, 3e-3 * 128 / static_cast<double>(config.d_model));
}

OptimizerKind optimizer_from(const Arguments& args) {
  return args.optimizer == "sgd" ? OptimizerKind::sgd : OptimizerKind::adamw;
}

// What a run has where nothing is said.
transformer::TrainerOptions usual_options(const Arguments& args, const Config& config, int ranks) {
  transformer::TrainerOptions options;
  options.optimizer = optimizer_from(args);
  options.steps = args.steps.value_or(options.steps);
  options.sequence = config.sequence;
  options.batch = (16 + ranks - 1) / ranks * ranks;
  options.warmup = std::min<std::int64_t>(100, options.steps / 10);
  options.learning_rate = usual_learning_rate(options.optimizer, config);
  options.min_learning_rate = options.learning_rate / 10;
  return options;
}

// What is said replaces what would be usual, or what the run had so far.
transformer::TrainerOptions options_from(const Arguments& args,
                                         transformer::TrainerOptions options) {
  options.steps = args.steps.value_or(options.steps);
  options.sequence = args.sequence.value_or(options.sequence);
  options.batch = args.batch.value_or(options.batch);
  options.accumulate = args.accumulate.value_or(options.accumulate);
  options.seed = args.seed.value_or(options.seed);
  options.warmup = args.warmup.value_or(options.warmup);
  options.clip = args.clip.value_or(options.clip);
  options.weight_decay = args.weight_decay.value_or(options.weight_decay);
  if (args.learning_rate) options.min_learning_rate = *args.learning_rate / 10;
  options.learning_rate = args.learning_rate.value_or(options.learning_rate);
  options.min_learning_rate = args.min_learning_rate.value_or(options.min_learning_rate);
  options.validate_every = args.validate_every;
  options.checkpoint_activations = args.checkpoint_activations;
  if (args.eval_batches) options.validation_windows = *args.eval_batches * options.batch;
  return options;
}

// Of the run that is gone on with. What cannot be changed on the way is refused; what can be,
// run_training() tells.
void resume(const Arguments& args, TrainingPlan& plan) {
  if (args.init)
    throw UsageError("--resume goes on with a run and --init starts one: choose one of them");
  plan.resumed = transformer::read_run(*args.resume);
  transformer::require_vocabulary_of(*plan.resumed, plan.vocabulary->fingerprint());
  plan.dtype = plan.resumed->dtype;
  if (args.dtype && *args.dtype != autograd::name_of(plan.dtype)) {
    throw UsageError(fmt::format("the run in {} is in {}: it cannot go on in {}", *args.resume,
                                 autograd::name_of(plan.dtype), *args.dtype));
  }
  if (args.optimizer && optimizer_from(args) != plan.resumed->options.optimizer) {
    throw UsageError(fmt::format(
        "the run in {} has another optimizer than {}: it cannot go on with that one's state",
        *args.resume, *args.optimizer));
  }
  plan.options = options_from(args, plan.resumed->options);
  require(plan.resumed->step < plan.options.steps,
          "the run in {} has taken its {} steps: ask for more with --steps", *args.resume,
          plan.resumed->step);
}

void decide_what_is_saved(const Arguments& args, TrainingPlan& plan) {
  plan.save = args.save.empty() ? args.resume.value_or("") : args.save;
  plan.save_every = args.save_every.value_or(0);
  if (args.save_every && plan.save.empty())
    throw UsageError("--save-every asks for a folder to save in: name one with --save");
  plan.stop_at = args.stop_at.value_or(plan.options.steps);
}

TrainingPlan plan_from(const Arguments& args, int ranks, int ranks_on_this_machine) {
  TrainingPlan plan;
  plan.vocabulary = vocabulary_from(args);
  plan.config = config_from(args, *plan.vocabulary);
  plan.model_name = args.init           ? *args.init
                    : args.resume       ? *args.resume
                    : names_sizes(args) ? "custom"
                                        : args.model.value_or("tiny");
  if (args.resume) {
    resume(args, plan);
  } else {
    plan.options = options_from(args, usual_options(args, plan.config, ranks));
    plan.dtype = args.dtype == "fp64"   ? autograd::DType::fp64
                 : args.dtype == "bf16" ? autograd::DType::bf16
                                        : autograd::DType::fp32;
  }
  require_fits(*plan.vocabulary, plan.config);
  plan.device = device_from(args.device, plan.dtype);
  if (plan.device == autograd::Device::cuda && args.ranks.backend == "threads" && ranks > 1)
    throw UsageError("--device cuda takes a process for each rank: leave out --backend threads");
  plan.data.assign(args.data.begin(), args.data.end());
  plan.strategy = args.strategy.value_or(ranks == 1 ? "single" : "flat");
  plan.backend = args.ranks.backend;
  plan.bucket_mb = args.bucket_mb;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  plan.threads = args.threads.value_or(std::max(1, cores / ranks_on_this_machine));
  plan.init = args.init ? *args.init : args.resume.value_or("");
  plan.metrics = args.metrics;
  plan.dump = args.dump;
  plan.recording = {args.trace, args.report, {}};
  if (!args.trace_steps.empty()) plan.recording.steps = parse_steps(args.trace_steps);
  plan.sample_tokens = args.sample_tokens;
  plan.sample = args.sample;
  plan.sample.seed = plan.options.seed;
  plan.memory_limit_gb = args.memory_limit_gb;
  decide_what_is_saved(args, plan);
  if (plan.strategy == "single" && ranks > 1) {
    throw UsageError(fmt::format(
        "--parallel single trains on one rank, not on {}: choose one of the others", ranks));
  }
  return plan;
}

void train_as_rank(TrainingPlan plan, const DeviceOption& device,
                   collectives::ProcessGroup& group) {
  take_device(plan.device);
  join_device(device, plan.device, group);
  plan.backend = group.backend_name();
  Recording recording = recording_of(plan);
  run_training(plan, make_strategy(plan.strategy, group, plan.bucket_mb), recording);
  recording.write(group,
                  fmt::format("Training {} on {} rank{}", plan.model_name, group.size(),
                              group.size() == 1 ? "" : "s"),
                  facts_of(plan, group.size()));
}

void train(const Arguments& args) {
  TrainingPlan plan;
  const auto prepare = [&](int ranks, int ranks_here) {
    plan = plan_from(args, ranks, ranks_here);
    check_memory(plan, ranks, ranks_here);
    if (environment("RANK")) return;  // the rest takes long where there are many
    check_plan(plan, ranks);
    prepare_outputs(plan);
  };
  run_on_ranks(
      args.ranks,
      [&](collectives::ProcessGroup& group, int) { train_as_rank(plan, args.device, group); },
      prepare);
}

void add_model_options(CLI::App& command, Arguments& args) {
  const auto sizes =
      fmt::format("A size by name: {} (tiny)", fmt::join(transformer::config_names(), ", "));
  command.add_option("--model", args.model, sizes)->type_name("NAME")->group("Model");
  const auto size = [&](const char* name, auto& value, const char* text) {
    command.add_option(name, value, text)->type_name("N")->group("Model");
  };
  size("--d-model", args.d_model,
       "Width of the model; like the sizes below it replaces what the name says");
  size("--layers", args.layers, "Blocks");
  size("--heads", args.heads, "Query heads");
  size("--kv-heads", args.kv_heads, "Key and value heads (as many as query heads)");
  size("--d-ff", args.d_ff, "Width of the feed-forward part");
  size("--vocabulary", args.vocabulary,
       "Tokens that there are; bytes need 256 (tiny: as many as --tokenizer has)");
  size("--sequence", args.sequence, "Tokens of a sequence, and the most that the model can see");
  command.add_flag("--tied-head", args.tied_head, "Let the head share the embedding's matrix")
      ->group("Model");
  command
      .add_option("--init", args.init, "Start from this folder: config.json and model.safetensors")
      ->type_name("DIR")
      ->group("Model");
  command
      .add_option("--resume", args.resume,
                  "Go on with the run that was saved in this folder, and save there; its options "
                  "hold where none are given")
      ->type_name("DIR")
      ->group("Model");
  command
      .add_option("--dtype", args.dtype,
                  "Numbers: fp32, fp64, or bf16: weights, activations and gradients are kept in 16 "
                  "bits, sums and the optimizer in fp32 (fp32)")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"fp32", "fp64", "bf16"}).description(""))
      ->group("Model");
}

void add_parallel_options(CLI::App& command, Arguments& args) {
  add_ranks_option(command, args.ranks);
  command.get_option("--ranks")->group("Ranks");
  add_link_option(command);
  command.get_option("--link")->group("Ranks");
  command
      .add_option(
          "--bucket-mb", args.bucket_mb,
          "Of bucketed, zero1 and zero2: the most that travels in one call, in 10^6 bytes (25)")
      ->type_name("MB")
      ->check(CLI::PositiveNumber.description(""))
      ->group("Ranks");
  command
      .add_option(
          "--parallel", args.strategy,
          fmt::format("{} (single on one rank, else flat)", fmt::join(strategy_names(), ", ")))
      ->type_name("FORM")
      ->check(CLI::IsMember(strategy_names()).description(""))
      ->group("Ranks");
  add_backend_option(command, args.ranks);
  command.get_option("--backend")->group("Ranks");
  add_device_option(command, args.device)->group("Ranks");
  add_device_backend_option(command, args.device)->group("Ranks");
  add_memory_limit(command, args.memory_limit_gb)->group("Ranks");
  command
      .add_option("--threads", args.threads,
                  "Threads that each rank computes on (cores divided by ranks)")
      ->type_name("N")
      ->check(at_least_one("thread"))
      ->group("Ranks");
}

void add_training_options(CLI::App& command, Arguments& args) {
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return command.add_option(name, value, text)->type_name(type)->group("Training");
  };
  option("--data", args.data, "PATH",
         "Text files, and directories of such (the C++ standard library headers)");
  option("--tokenizer", args.tokenizer, "PATH",
         "What the text is read in: a tokenizer.json, or a folder with one; see `ringside "
         "tokenize` (bytes, or what --init and --resume bring)");
  option("--steps", args.steps, "N", "Steps (100)");
  option("--stop-at", args.stop_at, "N",
         "Stop after step N, as if interrupted there: the learning rate still falls until --steps")
      ->check(at_least_one("step"));
  option("--batch", args.batch, "N",
         "Sequences per step over ALL ranks (16, or the next multiple of the ranks)");
  option("--accumulate", args.accumulate, "K",
         "Micro-batches in which a rank works off its share: less memory, the same gradients (1)")
      ->check(at_least_one("micro-batch"));
  command
      .add_flag(
          "--checkpoint-activations", args.checkpoint_activations,
          "Compute each block again in backward: less memory, a third more time, the same bits")
      ->group("Training");
  option("--optimizer", args.optimizer, "NAME", "sgd or adamw (adamw)")
      ->check(CLI::IsMember({"sgd", "adamw"}).description(""));
  option("--lr", args.learning_rate, "RATE",
         "Peak learning rate (adamw: 3e-3 for width 128, less for wider; sgd: 0.1)");
  option("--min-lr", args.min_learning_rate, "RATE", "Learning rate at the end (a tenth of --lr)");
  option("--warmup", args.warmup, "N", "Steps until the peak (a tenth of all, 100 at most)");
  option("--clip", args.clip, "NORM", "Longest gradient; 0: any (1)");
  option("--weight-decay", args.weight_decay, "X", "Of matrices only (0.1)");
  option("--seed", args.seed, "N", "Of first values, batches and sample (0)");
  option("--eval-every,--validate-every", args.validate_every, "N",
         "Steps between examinations on held-out text; 0: at the end (0)");
  option("--eval-batches", args.eval_batches, "N",
         "Batches of held-out text in an examination (as many as 64 sequences take)")
      ->check(at_least_one("batch"));
}

void add_output_options(CLI::App& command, Arguments& args) {
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return command.add_option(name, value, text)->type_name(type)->group("What comes of it");
  };
  option("--metrics", args.metrics, "FILE", "Write a JSON line per step");
  option("--trace", args.trace, "FILE",
         "Write what every rank did in a few steps there, for ui.perfetto.dev or chrome://tracing");
  option("--trace-steps", args.trace_steps, "A-B", "... in these steps, also for --report (3-5)");
  option("--report", args.report, "FILE",
         "At the end write a page there, for a browser: lanes of every rank, memory over a step, "
         "loss");
  option("--dump", args.dump, "DIR",
         "After every step write gradients and parameters to DIR/step0001.safetensors and so on");
  option("--save", args.save, "DIR",
         "At the end write config.json and model.safetensors, as Hugging Face's Llama, and what "
         "--resume needs");
  option("--save-every", args.save_every, "N", "... and after every N steps too")
      ->check(at_least_one("step"));
  option("--sample", args.sample_tokens, "N",
         "At the end print so many tokens that the model makes up (0)")
      ->check(not_negative());
  option("--temperature", args.sample.temperature, "T",
         "... below 1: the likelier; 0: the likeliest (0.8)")
      ->check(not_negative());
  option("--top-k", args.sample.top_k, "K", "... out of the K likeliest; 0: out of all (0)")
      ->check(not_negative());
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("train", "Train a transformer on text, on as many ranks as you like")
          ->footer(more);
  add_parallel_options(*command, *args);
  add_model_options(*command, *args);
  add_training_options(*command, *args);
  add_output_options(*command, *args);
  // Of an option that is given twice the last one counts, so that a script may put its own in front
  // of the user's.
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() == 1) option->take_last();
  }
  command->callback([args] { train(*args); });
}

}  // namespace ringside::cli
