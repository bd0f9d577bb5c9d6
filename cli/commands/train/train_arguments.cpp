#include "cli/commands/train/train_arguments.hpp"

#include <algorithm>
#include <memory>
#include <thread>

#include "cli/commands/train/unchanged_checkpoint.hpp"
#include "cli/launcher/exit.hpp"
#include "cli/options/option_checks.hpp"
#include "training/mesh/group_division.hpp"
#include "training/run_options.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/recompute_groups.hpp"

namespace ringside::cli {
namespace {

using training::OptimizerKind;
using training::TrainerOptions;
using transformer::Config;
using transformer::Vocabulary;

bool names_sizes(const TrainArguments& args) {
  return args.plan.config.tied_head || args.has("--balance") ||
         std::ranges::any_of(training::model_sizes,
                             [&](const auto& size) { return args.has(size.first); });
}

// The tokenizer that is named, or else the one beside the parameters that the run starts from.
std::shared_ptr<const Vocabulary> vocabulary_from(const TrainArguments& args) {
  const auto& checkpoint = args.resume ? args.resume : args.init;
  return std::make_shared<Vocabulary>(args.tokenizer ? Vocabulary::load(*args.tokenizer)
                                      : checkpoint   ? Vocabulary::of_checkpoint(*checkpoint)
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
    refuse_if(args.model || names_sizes(args),
              "{} brings the model's sizes with it: leave out --model and the sizes",
              args.init ? "--init" : "--resume");
    return transformer::load_config(args.init ? *args.init : *args.resume);
  }
  const Config& given = args.plan.config;
  Config config = transformer::named_config(args.model.value_or("tiny"));
  // A named size whose vocabulary is the 256 bytes takes the vocabulary of any tokenizer.
  if (config.vocabulary == Vocabulary().size()) config.vocabulary = vocabulary.size();
  for (const auto& [flag, size] : training::model_sizes)
    if (args.has(flag)) config.*size = given.*size;
  if (!args.has("--kv-heads")) config.kv_heads = config.heads;
  if (args.has("--sequence")) config.sequence = args.plan.options.sequence;
  if (args.has("--balance")) config.balance = given.balance;
  config.tied_head = given.tied_head;
  config.initialise_seed = args.plan.options.seed;
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

// Attention keeps no scores, so selective recomputation has nothing to compute again.
void set_recomputation(const TrainArguments& args, TrainerOptions& options) {
  if (args.recompute) options.recompute = transformer::recompute_groups_from(*args.recompute);
}

TrainerOptions options_of_new_run(const TrainArguments& args, const Config& config,
                                  int data_ranks) {
  TrainerOptions options = args.plan.options;
  options.optimizer = optimizer_from(args);
  set_recomputation(args, options);
  if (!args.has("--sequence")) options.sequence = config.sequence;
  if (!args.has("--batch")) options.batch = (16 + data_ranks - 1) / data_ranks * data_ranks;
  if (!args.has("--warmup")) options.warmup = std::min<std::int64_t>(100, options.steps / 10);
  if (!args.has("--lr")) options.learning_rate = default_learning_rate(options.optimizer, config);
  if (!args.has("--min-lr")) options.min_learning_rate = options.learning_rate / 10;
  return options;
}

TrainerOptions options_of_resumed_run(const TrainArguments& args, TrainerOptions options) {
  const TrainerOptions& given = args.plan.options;
  if (args.has("--lr")) options.min_learning_rate = given.learning_rate / 10;
  training::for_each_trainer_option([&](const char* flag, const char*, auto field) {
    if (args.has(flag)) options.*field = given.*field;
  });
  options.validate_every = given.validate_every;
  set_recomputation(args, options);
  return options;
}

// One rank of each machine reads the files that the run starts from. What the user accepts, the
// process that starts the ranks has said.
void require_unchanged_files(const TrainArguments& args, const std::filesystem::path& directory,
                             const std::vector<std::string>& more = {}) {
  if (another_rank_reports() || (args.accept_changes && started_by_same_command())) return;
  require_unchanged(directory, args.accept_changes, more);
}

// Takes over the saved run. Refuses what a run cannot change; print_header() lists the changes.
void resume(const TrainArguments& args, TrainingPlan& plan) {
  refuse_if(args.init.has_value(),
            "--resume continues a run and --init starts one: choose one of them");
  plan.resumed = training::read_run(*args.resume, [&](const training::SavedRun& run) {
    require_unchanged_files(args, run.directory, {run.file.filename().string()});
  });
  if (args.accept_changes) plan.resumed->checksums.reset();
  training::require_vocabulary_of(*plan.resumed, plan.vocabulary->fingerprint());
  if (plan.data.empty()) plan.data = plan.resumed->data;
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
  plan.options = options_of_resumed_run(args, plan.resumed->options);
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
    if (args.init) require_unchanged_files(args, *args.init);
    plan.options = options_of_new_run(args, plan.config, plan.data_ranks(ranks));
    plan.dtype = autograd::dtype_named(args.dtype.value_or("fp32"));
  }
  if (args.eval_batches) plan.options.validation_windows = *args.eval_batches * plan.options.batch;
  if (!args.has("--stop-at")) plan.stop_at = plan.options.steps;
  require_fits(*plan.vocabulary, plan.config);
}

// How the ranks divide the model and the batch.
void plan_mesh(const TrainArguments& args, int ranks, TrainingPlan& plan) {
  refuse_if(args.sequence_parallel && !args.mesh,
            "--sequence-parallel needs a mesh: add --mesh tp=2, for example");
  const bool has_context =
      args.mesh && parallel::MeshShape(*args.mesh).size(parallel::Axis::cp) > 1;
  for (const char* flag : {"--context", "--token-order"})
    refuse_if(args.has(flag) && !has_context,
              "{} needs context parallel: add --mesh cp=2, for example", flag);
  refuse_if(args.tensor_library &&
                (!args.mesh || parallel::MeshShape(*args.mesh).size(parallel::Axis::tp) == 1),
            "--tensor-parallel needs ranks that share matrices: add --mesh tp=2, for example");
  refuse_if(args.tensor_library && args.sequence_parallel,
            "--tensor-parallel names functions of whole sequences: leave out --sequence-parallel");
  if (!args.mesh) return;
  plan.mesh = training::MeshPlan{parallel::MeshShape(*args.mesh), args.sequence_parallel};
  plan.mesh->context = args.context.options();
  plan.mesh->tensor_library = args.tensor_library.value_or("");
  training::find_tensor_functions(plan.mesh->tensor_library);
  plan.mesh->shape.require_ranks(ranks);
  refuse_if(
      (plan.divides_model() || has_context) && plan.sample_tokens > 0,
      "generation on a mesh is not supported: leave out --sample, save the model with --save DIR "
      "and run ringside generate --init DIR");
}

// The micro-batches of a step are known by now.
void plan_pipeline(const TrainArguments& args, TrainingPlan& plan) {
  const bool pipeline = plan.mesh && plan.mesh->shape.size(parallel::Axis::pp) > 1;
  refuse_if((args.schedule || args.stages_per_rank) && !pipeline,
            "{} needs a pipeline: add --mesh pp=2, for example",
            args.schedule ? "--schedule" : "--stages-per-rank");
  if (pipeline)
    training::plan_schedule(*plan.mesh, args.schedule.value_or("1f1b"), plan.options.accumulate,
                            args.stages_per_rank.value_or(0));
}

// Between GPUs there are the collectives of data and tensor parallelism, and no others yet.
void require_calls_of_gpus(const training::MeshPlan& mesh) {
  using parallel::Axis;
  const auto refuse = [&](const char* what, const char* calls) {
    throw UsageError(fmt::format(
        "{} needs {}, which the backends of GPUs do not have: train on axes dp, fsdp, tp and cp "
        "(--context all_gather), or leave out --device",
        what, calls));
  };
  if (mesh.shape.size(Axis::pp) > 1) refuse("a pipeline (pp)", "send and recv");
  if (mesh.shape.size(Axis::ep) > 1) refuse("expert parallel (ep)", "all_to_all");
  if (mesh.shape.size(Axis::cp) > 1 && mesh.context.exchange == context_parallel::Exchange::ulysses)
    refuse("--context ulysses", "all_to_all");
}

// Where the ranks compute and how they communicate.
void plan_ranks(const TrainArguments& args, int ranks, int ranks_on_this_machine,
                TrainingPlan& plan) {
  plan.device = device_from(args.device, plan.dtype);
  require_processes_for(args.device, {args.ranks.backend}, ranks);
  if (plan.mesh && plan.mesh->shape.size(parallel::Axis::cp) > 1 &&
      plan.device != autograd::Device::cpu) {
    auto& exchange = plan.mesh->context.exchange;
    if (!args.has("--context")) exchange = context_parallel::Exchange::all_gather;
    refuse_if(exchange == context_parallel::Exchange::ring,
              "--context ring merges blocks on the CPU only: choose all_gather or ulysses");
  }
  if (plan.mesh && plan.device == autograd::Device::cuda) require_calls_of_gpus(*plan.mesh);
  const int copies = plan.mesh ? plan.mesh->gradient_ranks() : ranks;
  const bool shards = plan.mesh && plan.mesh->shape.size(parallel::Axis::fsdp) > 1;
  if (!args.has("--parallel")) plan.strategy = shards ? "zero3" : copies == 1 ? "single" : "flat";
  refuse_if(plan.strategy == "single" && copies > 1,
            "--parallel single trains on one rank, not on {}: choose another strategy", copies);
  training::find_strategy(
      plan.strategy);  // what is wrong with a library is said before ranks start
  plan.backend = args.ranks.backend;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  plan.threads = args.threads.value_or(std::max(1, cores / ranks_on_this_machine));
}

void plan_outputs(const TrainArguments& args, TrainingPlan& plan) {
  if (plan.mesh) plan.recording.mesh = plan.mesh->shape;
  if (args.trace_steps) plan.recording.steps = parse_steps(*args.trace_steps);
  plan.sample.seed = plan.options.seed;
  if (plan.save.empty()) plan.save = args.resume.value_or("");
  refuse_if(plan.save_every > 0 && plan.save.empty(),
            "--save-every needs a folder to save in: name one with --save");
  refuse_if(plan.sample_every > 0 && plan.sample_tokens == 0,
            "--sample-every needs the length of a sample: give it with --sample");
}

void require_elastic(const TrainArguments& args, const training::ElasticSizes& sizes,
                     const TrainingPlan& plan) {
  if (const std::string obstacle = sizes.obstacle(plan); !obstacle.empty())
    throw UsageError(obstacle);
  refuse_if(!plan.recording.trace.empty() || !plan.recording.report.empty(),
            "--trace and --report need the same ranks throughout: leave out --elastic");
  refuse_if(args.ranks.backend == "threads",
            "--elastic survives the loss of a process: leave out --backend threads");
}

}  // namespace

TrainingPlan plan_from(const TrainArguments& args, int ranks, int ranks_on_this_machine,
                       const std::optional<training::ElasticSizes>& elastic) {
  TrainingPlan plan = args.plan;
  plan_mesh(args, ranks, plan);
  plan_model(args, elastic ? static_cast<int>(elastic->smallest_batch()) : ranks, plan);
  plan_pipeline(args, plan);
  plan_ranks(args, ranks, ranks_on_this_machine, plan);
  plan_outputs(args, plan);
  if (elastic) require_elastic(args, *elastic, plan);
  return plan;
}

}  // namespace ringside::cli
