#include "cli/training/train_arguments.hpp"

#include <algorithm>
#include <memory>
#include <thread>

#include "cli/launcher/exit.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

namespace ringside::cli {
namespace {

using transformer::Config;
using transformer::OptimizerKind;
using transformer::Vocabulary;

bool names_sizes(const TrainArguments& args) {
  return args.d_model || args.layers || args.heads || args.kv_heads || args.d_ff ||
         args.vocabulary || args.tied_head;
}

// The tokenizer that is named, or else the one beside the parameters that the run starts from.
std::shared_ptr<const Vocabulary> vocabulary_from(const TrainArguments& args) {
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

Config config_from(const TrainArguments& args, const Vocabulary& vocabulary) {
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
  // A named size whose vocabulary is the 256 bytes takes the vocabulary of any tokenizer.
  if (config.vocabulary == Vocabulary().size()) config.vocabulary = vocabulary.size();
  config.vocabulary = args.vocabulary.value_or(config.vocabulary);
  config.sequence = args.sequence.value_or(config.sequence);
  config.tied_head = args.tied_head;
  config.initialise_seed = args.seed.value_or(0);
  return config;
}

OptimizerKind optimizer_from(const TrainArguments& args) {
  return args.optimizer == "sgd" ? OptimizerKind::sgd : OptimizerKind::adamw;
}

// Wider models need a lower rate: 3e-3 for `tiny`, 2.4e-4 for `xl`.
double default_learning_rate(OptimizerKind optimizer, const Config& config) {
  return optimizer == OptimizerKind::sgd
             ? 0.1
             : std::min(3e-3, 3e-3 * 128 / static_cast<double>(config.d_model));
}

transformer::TrainerOptions default_options(const TrainArguments& args, const Config& config,
                                            int data_ranks) {
  transformer::TrainerOptions options;
  options.optimizer = optimizer_from(args);
  options.steps = args.steps.value_or(options.steps);
  options.sequence = config.sequence;
  options.batch = (16 + data_ranks - 1) / data_ranks * data_ranks;
  options.warmup = std::min<std::int64_t>(100, options.steps / 10);
  options.learning_rate = default_learning_rate(options.optimizer, config);
  options.min_learning_rate = options.learning_rate / 10;
  return options;
}

// Replaces defaults, or the options of a resumed run, by the given arguments.
transformer::TrainerOptions options_from(const TrainArguments& args,
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

// Takes over the saved run. Refuses what a run cannot change; print_header() lists the changes.
void resume(const TrainArguments& args, TrainingPlan& plan) {
  if (args.init)
    throw UsageError("--resume continues a run and --init starts one: choose one of them");
  plan.resumed = transformer::read_run(*args.resume);
  transformer::require_vocabulary_of(*plan.resumed, plan.vocabulary->fingerprint());
  plan.dtype = plan.resumed->dtype;
  if (args.dtype && *args.dtype != autograd::name_of(plan.dtype)) {
    throw UsageError(fmt::format("the run in {} is in {}: it cannot continue in {}", *args.resume,
                                 autograd::name_of(plan.dtype), *args.dtype));
  }
  if (args.optimizer && optimizer_from(args) != plan.resumed->options.optimizer) {
    throw UsageError(
        fmt::format("the run in {} has the state of another optimizer than {}: leave out "
                    "--optimizer",
                    *args.resume, *args.optimizer));
  }
  plan.options = options_from(args, plan.resumed->options);
  require(plan.resumed->step < plan.options.steps,
          "the run in {} has taken its {} steps: ask for more with --steps", *args.resume,
          plan.resumed->step);
}

// The model and the training options.
void plan_model(const TrainArguments& args, int ranks, TrainingPlan& plan) {
  plan.vocabulary = vocabulary_from(args);
  plan.config = config_from(args, *plan.vocabulary);
  plan.model_name = args.init           ? *args.init
                    : args.resume       ? *args.resume
                    : names_sizes(args) ? "custom"
                                        : args.model.value_or("tiny");
  plan.init = args.init ? *args.init : args.resume.value_or("");
  if (args.resume) {
    resume(args, plan);
  } else {
    plan.options = options_from(args, default_options(args, plan.config, plan.data_ranks(ranks)));
    plan.dtype = autograd::dtype_named(args.dtype.value_or("fp32"));
  }
  require_fits(*plan.vocabulary, plan.config);
}

// How the ranks divide the model and the batch.
void plan_mesh(const TrainArguments& args, int ranks, TrainingPlan& plan) {
  if (args.sequence_parallel && !args.mesh)
    throw UsageError("--sequence-parallel needs a mesh: add --mesh tp=2, for example");
  if (!args.mesh) return;
  plan.mesh = MeshPlan{parallel::MeshShape(*args.mesh), args.sequence_parallel};
  plan.mesh->shape.require_ranks(ranks);
  if (plan.divides_model() && args.sample_tokens > 0)
    throw UsageError(
        "generation on a mesh is not supported: leave out --sample, save the model with --save DIR "
        "and run ringside generate --init DIR");
}

// The micro-batches of a step are known by now.
void plan_pipeline(const TrainArguments& args, TrainingPlan& plan) {
  const bool pipeline = plan.mesh && plan.mesh->shape.size(parallel::Axis::pp) > 1;
  if ((args.schedule || args.stages_per_rank) && !pipeline)
    throw UsageError(fmt::format("{} needs a pipeline: add --mesh pp=2, for example",
                                 args.schedule ? "--schedule" : "--stages-per-rank"));
  if (pipeline)
    plan_schedule(*plan.mesh, args.schedule.value_or("1f1b"), plan.options.accumulate,
                  args.stages_per_rank.value_or(0));
}

// Where the ranks compute and how they communicate.
void plan_ranks(const TrainArguments& args, int ranks, int ranks_on_this_machine,
                TrainingPlan& plan) {
  plan.device = device_from(args.device, plan.dtype);
  require_processes_for(args.device, {args.ranks.backend}, ranks);
  const int data_ranks = plan.data_ranks(ranks);
  plan.strategy = args.strategy.value_or(data_ranks == 1 ? "single" : "flat");
  if (plan.strategy == "single" && data_ranks > 1) {
    throw UsageError(fmt::format(
        "--parallel single trains on one rank, not on {}: choose another strategy", data_ranks));
  }
  find_strategy(plan.strategy);  // what is wrong with a library is said before ranks start
  plan.backend = args.ranks.backend;
  plan.bucket_mb = args.bucket_mb;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  plan.threads = args.threads.value_or(std::max(1, cores / ranks_on_this_machine));
  plan.memory_limit_gb = args.memory_limit_gb;
}

void plan_outputs(const TrainArguments& args, TrainingPlan& plan) {
  plan.metrics = args.metrics;
  plan.dump = args.dump;
  plan.recording = {args.trace, args.report, {}, !args.mesh};
  if (!args.trace_steps.empty()) plan.recording.steps = parse_steps(args.trace_steps);
  plan.sample_tokens = args.sample_tokens;
  plan.sample_every = args.sample_every;
  plan.sample = args.sample;
  plan.sample.seed = plan.options.seed;
  plan.save = args.save.empty() ? args.resume.value_or("") : args.save;
  plan.overwrite = args.overwrite;
  plan.go_on = args.go_on;
  plan.save_every = args.save_every.value_or(0);
  if (args.save_every && plan.save.empty())
    throw UsageError("--save-every needs a folder to save in: name one with --save");
  if (args.sample_every > 0 && args.sample_tokens == 0)
    throw UsageError("--sample-every needs the length of a sample: give it with --sample");
  plan.stop_at = args.stop_at.value_or(plan.options.steps);
}

}  // namespace

TrainingPlan plan_from(const TrainArguments& args, int ranks, int ranks_on_this_machine) {
  TrainingPlan plan;
  plan.data.assign(args.data.begin(), args.data.end());
  plan_mesh(args, ranks, plan);
  plan_model(args, ranks, plan);
  plan_pipeline(args, plan);
  plan_ranks(args, ranks, ranks_on_this_machine, plan);
  plan_outputs(args, plan);
  return plan;
}

}  // namespace ringside::cli
