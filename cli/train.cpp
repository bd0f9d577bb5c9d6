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
#include "cli/device_option.hpp"
#include "cli/forms.hpp"
#include "cli/memory_check.hpp"
#include "cli/ranks.hpp"
#include "cli/training_run.hpp"
#include "collectives/process_group.hpp"
#include "ddp/bucketed.hpp"
#include "transformer/checkpoint.hpp"

namespace ringside::cli {
namespace {

using transformer::Config;
using transformer::OptimizerKind;
using transformer::Vocabulary;

constexpr const char* more =
    "\nExamples:\n"
    "  ringside train -n 4 --steps 500                           four processes, the C++ standard library as text\n"
    "  ringside train -n 2 --parallel naive --data notes/ a.txt  other text, another form of data parallelism\n"
    "  ringside train -n 4 --parallel zero3 --model lab          parameters, gradients and optimizer state in four parts\n"
    "  ringside train -n 4 --backend threads --steps 2           four ranks in one process, for a debugger\n"
    "  ringside tokenize --train 10000 --save tokenizer/ && ringside train --tokenizer tokenizer/ --model lab\n"
    "\n"
    "Of the forms, naive to bucketed keep everything on every rank and average gradients; zero1_broadcast and zero1 share out the optimizer's\n"
    "state, zero2 gradients too, zero3 (FSDP) parameters too. A checkpoint is the same from all, and any of them goes on with it.\n"
    "\n"
    "Every step draws the same global batch whatever the number of ranks: hold runs with 1, 2 and 4 ranks against each other\n"
    "with --dump. Each row of --metrics has step, loss (nats per token), bits_per_byte, tokens_per_second, step_seconds,\n"
    "communication_seconds, gradient_norm (before clipping) and lr; an examination adds a row with step and\n"
    "validation_bits_per_byte. Weight decay spares norms and the embedding.\n"
    "\n"
    "A token is a byte, or what --tokenizer makes of the text. Bits per byte is the loss by the bytes that the foretold tokens stand for, and\n"
    "so compares runs with different tokenizers. --save puts the tokenizer beside the model; --init, --resume, `ringside generate` and\n"
    "`ringside eval` find it there.\n"
    "\n"
    "A run that is interrupted and gone on with (--save DIR --save-every N, then --resume DIR) gives the same bits as one that was not,\n"
    "on as many ranks and threads as before; on others, the same but for rounding. Give it the same --data.";

// What the command line says. Where it says nothing, plan_from() decides from the rest.
struct Arguments {
  RanksOption ranks;
  DeviceOption device;
  std::optional<std::string> model, init, resume, form, dtype, optimizer, tokenizer;
  std::optional<std::int64_t> d_model, layers, heads, kv_heads, d_ff, vocabulary, sequence, steps, stop_at, batch, accumulate, warmup;
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

bool names_sizes(const Arguments& said) {
  return said.d_model || said.layers || said.heads || said.kv_heads || said.d_ff || said.vocabulary || said.tied_head;
}

// What the text is read in: the tokenizer that is named, or else the one that lies beside the parameters that the run starts from.
std::shared_ptr<const Vocabulary> vocabulary_from(const Arguments& said) {
  if (said.tokenizer) return std::make_shared<Vocabulary>(Vocabulary::load(*said.tokenizer));
  if (said.resume) return std::make_shared<Vocabulary>(Vocabulary::beside(*said.resume));
  return std::make_shared<Vocabulary>(said.init ? Vocabulary::beside(*said.init) : Vocabulary());
}

void require_fits(const Vocabulary& vocabulary, const Config& config) {
  if (vocabulary.is_bytes())
    require(config.vocabulary >= 256, "a token here is a byte, so the vocabulary must be at least 256, but it is {}", config.vocabulary);
  require(vocabulary.size() <= config.vocabulary,
          "the tokenizer {} has {} tokens, but the model's vocabulary is {}: take another tokenizer, or a model with --vocabulary {}",
          vocabulary.name(), vocabulary.size(), config.vocabulary, vocabulary.size());
}

Config config_from(const Arguments& said, const Vocabulary& vocabulary) {
  if (said.init || said.resume) {
    if (said.model || names_sizes(said))
      throw UsageError(fmt::format("{} brings the model's sizes with it: leave out --model and the sizes", said.init ? "--init" : "--resume"));
    return transformer::load_config(said.init ? *said.init : *said.resume);
  }
  Config config = transformer::named_config(said.model.value_or("tiny"));
  config.d_model = said.d_model.value_or(config.d_model);
  config.layers = said.layers.value_or(config.layers);
  config.heads = said.heads.value_or(config.heads);
  config.kv_heads = said.kv_heads.value_or(config.heads);
  config.d_ff = said.d_ff.value_or(config.d_ff);
  if (config.vocabulary == Vocabulary().size()) config.vocabulary = vocabulary.size();  // a size for bytes, whatever a token is
  config.vocabulary = said.vocabulary.value_or(config.vocabulary);
  config.sequence = said.sequence.value_or(config.sequence);
  config.tied_head = said.tied_head;
  config.initialise_seed = said.seed.value_or(0);
  return config;
}

// Wider models learn more slowly: 3e-3 for `tiny`, 2.4e-4 for `xl`.
double usual_learning_rate(OptimizerKind optimizer, const Config& config) {
  return optimizer == OptimizerKind::sgd ? 0.1 : std::min(3e-3, 3e-3 * 128 / static_cast<double>(config.d_model));
}

OptimizerKind optimizer_from(const Arguments& said) {
  return said.optimizer == "sgd" ? OptimizerKind::sgd : OptimizerKind::adamw;
}

// What a run has where nothing is said.
transformer::TrainerOptions usual_options(const Arguments& said, const Config& config, int ranks) {
  transformer::TrainerOptions options;
  options.optimizer = optimizer_from(said);
  options.steps = said.steps.value_or(options.steps);
  options.sequence = config.sequence;
  options.batch = (16 + ranks - 1) / ranks * ranks;
  options.warmup = std::min<std::int64_t>(100, options.steps / 10);
  options.learning_rate = usual_learning_rate(options.optimizer, config);
  options.min_learning_rate = options.learning_rate / 10;
  return options;
}

// What is said replaces what would be usual, or what the run had so far.
transformer::TrainerOptions options_from(const Arguments& said, transformer::TrainerOptions options) {
  options.steps = said.steps.value_or(options.steps);
  options.sequence = said.sequence.value_or(options.sequence);
  options.batch = said.batch.value_or(options.batch);
  options.accumulate = said.accumulate.value_or(options.accumulate);
  options.seed = said.seed.value_or(options.seed);
  options.warmup = said.warmup.value_or(options.warmup);
  options.clip = said.clip.value_or(options.clip);
  options.weight_decay = said.weight_decay.value_or(options.weight_decay);
  if (said.learning_rate) options.min_learning_rate = *said.learning_rate / 10;
  options.learning_rate = said.learning_rate.value_or(options.learning_rate);
  options.min_learning_rate = said.min_learning_rate.value_or(options.min_learning_rate);
  options.validate_every = said.validate_every;
  options.checkpoint_activations = said.checkpoint_activations;
  if (said.eval_batches) options.validation_windows = *said.eval_batches * options.batch;
  return options;
}

// Of the run that is gone on with. What cannot be changed on the way is refused; what can be, run_training() tells.
void resume(const Arguments& said, TrainingPlan& plan) {
  if (said.init) throw UsageError("--resume goes on with a run and --init starts one: choose one of them");
  plan.resumed = transformer::read_run(*said.resume);
  transformer::require_vocabulary_of(*plan.resumed, plan.vocabulary->fingerprint());
  plan.dtype = plan.resumed->dtype;
  if (said.dtype && *said.dtype != autograd::name_of(plan.dtype)) {
    throw UsageError(fmt::format("the run in {} is in {}: it cannot go on in {}", *said.resume, autograd::name_of(plan.dtype), *said.dtype));
  }
  if (said.optimizer && optimizer_from(said) != plan.resumed->options.optimizer) {
    throw UsageError(fmt::format("the run in {} has another optimizer than {}: it cannot go on with that one's state", *said.resume,
                                 *said.optimizer));
  }
  plan.options = options_from(said, plan.resumed->options);
  require(plan.resumed->step < plan.options.steps, "the run in {} has taken its {} steps: ask for more with --steps", *said.resume,
          plan.resumed->step);
}

void decide_what_is_saved(const Arguments& said, TrainingPlan& plan) {
  plan.save = said.save.empty() ? said.resume.value_or("") : said.save;
  plan.save_every = said.save_every.value_or(0);
  if (said.save_every && plan.save.empty()) throw UsageError("--save-every asks for a folder to save in: name one with --save");
  plan.stop_at = said.stop_at.value_or(plan.options.steps);
}

TrainingPlan plan_from(const Arguments& said, int ranks, int ranks_on_this_machine) {
  TrainingPlan plan;
  plan.vocabulary = vocabulary_from(said);
  plan.config = config_from(said, *plan.vocabulary);
  plan.model_name = said.init ? *said.init : said.resume ? *said.resume : names_sizes(said) ? "custom" : said.model.value_or("tiny");
  if (said.resume) {
    resume(said, plan);
  } else {
    plan.options = options_from(said, usual_options(said, plan.config, ranks));
    plan.dtype = said.dtype == "fp64" ? autograd::DType::fp64 : said.dtype == "bf16" ? autograd::DType::bf16 : autograd::DType::fp32;
  }
  require_fits(*plan.vocabulary, plan.config);
  plan.device = device_from(said.device, plan.dtype);
  if (plan.device == autograd::Device::cuda && said.ranks.backend == "threads" && ranks > 1)
    throw UsageError("--device cuda takes a process for each rank: leave out --backend threads");
  plan.data.assign(said.data.begin(), said.data.end());
  plan.form = said.form.value_or(ranks == 1 ? "single" : "flat");
  plan.backend = said.ranks.backend;
  plan.bucket_mb = said.bucket_mb;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  plan.threads = said.threads.value_or(std::max(1, cores / ranks_on_this_machine));
  plan.init = said.init ? *said.init : said.resume.value_or("");
  plan.metrics = said.metrics;
  plan.dump = said.dump;
  plan.recording = {said.trace, said.report, {}};
  if (!said.trace_steps.empty()) plan.recording.steps = parse_steps(said.trace_steps);
  plan.sample_tokens = said.sample_tokens;
  plan.sample = said.sample;
  plan.sample.seed = plan.options.seed;
  plan.memory_limit_gb = said.memory_limit_gb;
  decide_what_is_saved(said, plan);
  if (plan.form == "single" && ranks > 1) {
    throw UsageError(fmt::format("--parallel single trains on one rank, not on {}: choose one of the others", ranks));
  }
  return plan;
}

void train_as_rank(TrainingPlan plan, const DeviceOption& device, collectives::ProcessGroup& group) {
  take_device(plan.device);
  join_device(device, plan.device, group);
  plan.backend = group.backend_name();
  Recording recording = recording_of(plan);
  run_training(plan, make_form(plan.form, group, plan.bucket_mb), recording);
  recording.write(group, fmt::format("Training {} on {} rank{}", plan.model_name, group.size(), group.size() == 1 ? "" : "s"), facts_of(plan, group.size()));
}

void train(const Arguments& said) {
  TrainingPlan plan;
  const auto prepare = [&](int ranks, int ranks_here) {
    plan = plan_from(said, ranks, ranks_here);
    check_memory(plan, ranks, ranks_here);
    if (environment("RANK")) return;  // the rest takes long where there are many
    check_plan(plan, ranks);
    prepare_outputs(plan);
  };
  run_on_ranks(said.ranks, [&](collectives::ProcessGroup& group, int) { train_as_rank(plan, said.device, group); }, prepare);
}

void add_model_options(CLI::App& command, Arguments& said) {
  const auto sizes = fmt::format("A size by name: {} (tiny)", fmt::join(transformer::config_names(), ", "));
  command.add_option("--model", said.model, sizes)->type_name("NAME")->group("Model");
  const auto size = [&](const char* name, auto& value, const char* text) {
    command.add_option(name, value, text)->type_name("N")->group("Model");
  };
  size("--d-model", said.d_model, "Width of the model; like the sizes below it replaces what the name says");
  size("--layers", said.layers, "Blocks");
  size("--heads", said.heads, "Query heads");
  size("--kv-heads", said.kv_heads, "Key and value heads (as many as query heads)");
  size("--d-ff", said.d_ff, "Width of the feed-forward part");
  size("--vocabulary", said.vocabulary, "Tokens that there are; bytes need 256 (tiny: as many as --tokenizer has)");
  size("--sequence", said.sequence, "Tokens of a sequence, and the most that the model can see");
  command.add_flag("--tied-head", said.tied_head, "Let the head share the embedding's matrix")->group("Model");
  command.add_option("--init", said.init, "Start from this folder: config.json and model.safetensors")
      ->type_name("DIR")
      ->group("Model");
  command.add_option("--resume", said.resume, "Go on with the run that was saved in this folder, and save there; its options hold where none are given")
      ->type_name("DIR")
      ->group("Model");
  command.add_option("--dtype", said.dtype, "Numbers: fp32, fp64, or bf16: weights, activations and gradients are kept in 16 bits, sums and the optimizer in fp32 (fp32)")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"fp32", "fp64", "bf16"}).description(""))
      ->group("Model");
}

void add_parallel_options(CLI::App& command, Arguments& said) {
  add_ranks_option(command, said.ranks);
  command.get_option("--ranks")->group("Ranks");
  add_link_option(command);
  command.get_option("--link")->group("Ranks");
  command.add_option("--bucket-mb", said.bucket_mb, "Of bucketed, zero1 and zero2: the most that travels in one call, in 10^6 bytes (25)")
      ->type_name("MB")
      ->check(CLI::PositiveNumber.description(""))
      ->group("Ranks");
  command.add_option("--parallel", said.form, fmt::format("{} (single on one rank, else flat)", fmt::join(form_names(), ", ")))
      ->type_name("FORM")
      ->check(CLI::IsMember(form_names()).description(""))
      ->group("Ranks");
  add_backend_option(command, said.ranks);
  command.get_option("--backend")->group("Ranks");
  add_device_option(command, said.device)->group("Ranks");
  add_device_backend_option(command, said.device)->group("Ranks");
  add_memory_limit(command, said.memory_limit_gb)->group("Ranks");
  command.add_option("--threads", said.threads, "Threads that each rank computes on (cores divided by ranks)")
      ->type_name("N")
      ->check(at_least_one("thread"))
      ->group("Ranks");
}

void add_training_options(CLI::App& command, Arguments& said) {
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return command.add_option(name, value, text)->type_name(type)->group("Training");
  };
  option("--data", said.data, "PATH", "Text files, and directories of such (the C++ standard library headers)");
  option("--tokenizer", said.tokenizer, "PATH",
         "What the text is read in: a tokenizer.json, or a folder with one; see `ringside tokenize` (bytes, or what --init and --resume bring)");
  option("--steps", said.steps, "N", "Steps (100)");
  option("--stop-at", said.stop_at, "N", "Stop after step N, as if interrupted there: the learning rate still falls until --steps")
      ->check(at_least_one("step"));
  option("--batch", said.batch, "N", "Sequences per step over ALL ranks (16, or the next multiple of the ranks)");
  option("--accumulate", said.accumulate, "K", "Micro-batches in which a rank works off its share: less memory, the same gradients (1)")
      ->check(at_least_one("micro-batch"));
  command.add_flag("--checkpoint-activations", said.checkpoint_activations, "Compute each block again in backward: less memory, a third more time, the same bits")
      ->group("Training");
  option("--optimizer", said.optimizer, "NAME", "sgd or adamw (adamw)")->check(CLI::IsMember({"sgd", "adamw"}).description(""));
  option("--lr", said.learning_rate, "RATE", "Peak learning rate (adamw: 3e-3 for width 128, less for wider; sgd: 0.1)");
  option("--min-lr", said.min_learning_rate, "RATE", "Learning rate at the end (a tenth of --lr)");
  option("--warmup", said.warmup, "N", "Steps until the peak (a tenth of all, 100 at most)");
  option("--clip", said.clip, "NORM", "Longest gradient; 0: any (1)");
  option("--weight-decay", said.weight_decay, "X", "Of matrices only (0.1)");
  option("--seed", said.seed, "N", "Of first values, batches and sample (0)");
  option("--eval-every,--validate-every", said.validate_every, "N", "Steps between examinations on held-out text; 0: at the end (0)");
  option("--eval-batches", said.eval_batches, "N", "Batches of held-out text in an examination (as many as 64 sequences take)")
      ->check(at_least_one("batch"));
}

void add_output_options(CLI::App& command, Arguments& said) {
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return command.add_option(name, value, text)->type_name(type)->group("What comes of it");
  };
  option("--metrics", said.metrics, "FILE", "Write a JSON line per step");
  option("--trace", said.trace, "FILE", "Write what every rank did in a few steps there, for ui.perfetto.dev or chrome://tracing");
  option("--trace-steps", said.trace_steps, "A-B", "... in these steps, also for --report (3-5)");
  option("--report", said.report, "FILE", "At the end write a page there, for a browser: lanes of every rank, memory over a step, loss");
  option("--dump", said.dump, "DIR", "After every step write gradients and parameters to DIR/step0001.safetensors and so on");
  option("--save", said.save, "DIR", "At the end write config.json and model.safetensors, as Hugging Face's Llama, and what --resume needs");
  option("--save-every", said.save_every, "N", "... and after every N steps too")->check(at_least_one("step"));
  option("--sample", said.sample_tokens, "N", "At the end print so many tokens that the model makes up (0)")->check(not_negative());
  option("--temperature", said.sample.temperature, "T", "... below 1: the likelier; 0: the likeliest (0.8)")->check(not_negative());
  option("--top-k", said.sample.top_k, "K", "... out of the K likeliest; 0: out of all (0)")->check(not_negative());
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto said = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a transformer on text, on as many ranks as you like")->footer(more);
  add_parallel_options(*command, *said);
  add_model_options(*command, *said);
  add_training_options(*command, *said);
  add_output_options(*command, *said);
  // Of an option that is given twice the last one counts, so that a script may put its own in front of the user's.
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() == 1) option->take_last();
  }
  command->callback([said] { train(*said); });
}

}  // namespace ringside::cli
