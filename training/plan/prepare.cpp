#include "training/plan/prepare.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/read_file.hpp"
#include "base/usage_error.hpp"
#include "training/memory_check.hpp"
#include "training/mesh/mesh_model_ranks.hpp"
#include "training/plan/options.hpp"
#include "training/state/training_state.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/data/corpus_file.hpp"

namespace ringside::training {
namespace {

using parallel::Axis;
using transformer::Config;
using transformer::Vocabulary;

bool names_sizes(Plan& plan) {
  return std::ranges::any_of(options_of(plan), [&](const Option& row) {
    return row.kept == in_config && row.flag_name() != "--model" && plan.has(row.flag_name());
  });
}

// Sets in `plan` what the user has given in `asked`. Its lists, they have in common.
void take_given(Plan asked, Plan& plan) {
  const std::vector<Option> from = options_of(asked), to = options_of(plan);
  for (std::size_t i = 0; i < from.size(); ++i)
    if (asked.has(from[i].flag_name()) && from[i].kind != Option::list) to[i].set(from[i].get());
}

void require_fits(const Vocabulary& vocabulary, const Config& config) {
  if (vocabulary.is_bytes())
    require(config.vocabulary >= 256,
            "a token here is a byte, so the vocabulary must be at least 256, but it is {}",
            config.vocabulary);
  require(vocabulary.size() <= config.vocabulary,
          "the tokenizer of {} has {} tokens, but the model's vocabulary is {}: take another "
          "tokenizer, or a model with --vocabulary {}",
          vocabulary.name(), vocabulary.size(), config.vocabulary, vocabulary.size());
}

// A checkpoint with a tokenizer goes on with its tokens.
void require_tokenizer_of(const std::filesystem::path& checkpoint, const Plan& plan) {
  const std::filesystem::path path = checkpoint / "tokenizer.json";
  if (!std::filesystem::exists(path)) return;
  require(!plan.vocabulary->is_bytes(),
          "{} has a tokenizer, so its text must be encoded: type {}, then add --data NAME.u16",
          checkpoint.string(), command_to_encode(checkpoint, plan.data));
  require(
      plan.vocabulary->is_of(read_file(path)),
      "{} is not the tokenizer of {}: encode the text with it ({}), or move it out of the folder",
      path.string(), plan.vocabulary->name(), command_to_encode(checkpoint, {}));
}

// How the ranks divide the model and the batch.
void plan_mesh(int ranks, Plan& plan) {
  MeshPlan& mesh = plan.mesh;
  refuse_if(mesh.sequence_parallel && !mesh.given(),
            "--sequence-parallel needs a mesh: add --mesh tp=2, for example");
  const bool has_context = mesh.shape.size(Axis::cp) > 1;
  for (const char* flag : {"--context", "--token-order"})
    refuse_if(plan.has(flag) && !has_context,
              "{} needs context parallel: add --mesh cp=2, for example", flag);
  refuse_if(plan.has("--tensor-parallel") && mesh.shape.size(Axis::tp) == 1,
            "--tensor-parallel needs ranks that share matrices: add --mesh tp=2, for example");
  refuse_if(plan.has("--tensor-parallel") && mesh.sequence_parallel,
            "--tensor-parallel names functions of whole sequences: leave out --sequence-parallel");
  if (!mesh.given()) return;
  find_tensor_functions(mesh.tensor_library);
  mesh.shape.require_ranks(ranks);
  refuse_if(
      (mesh.divides_model() || has_context) && plan.sample_tokens > 0,
      "generation on a mesh is not supported: leave out --sample, save the model with --save DIR "
      "and run ringside generate --init DIR");
}

void choose_config(Plan& plan) {
  const Plan asked = plan;
  Config& config = plan.config = transformer::named_config(plan.model);
  // A named size whose vocabulary is the 256 bytes takes that of any tokens.
  if (config.vocabulary == Vocabulary().size()) config.vocabulary = plan.vocabulary->size();
  take_given(asked, plan);
  if (!plan.has("--kv-heads")) config.kv_heads = config.heads;
  if (plan.has("--sequence")) config.sequence = plan.options.sequence;
  config.initialise_seed = plan.options.seed;
  if (names_sizes(plan)) plan.model = "custom";
}

// The options of a new run that are not given follow from the others.
void choose_options(Plan& plan, int data_ranks) {
  TrainerOptions& options = plan.options;
  const Config& config = plan.config;
  if (!plan.has("--sequence")) options.sequence = config.sequence;
  if (!plan.has("--batch")) options.batch = (16 + data_ranks - 1) / data_ranks * data_ranks;
  if (!plan.has("--warmup")) options.warmup = std::min<std::int64_t>(100, options.steps / 10);
  // Wider models need a lower rate: 3e-3 for `tiny`, 2.4e-4 for `xl`.
  if (!plan.has("--lr"))
    options.learning_rate = options.optimizer == OptimizerKind::sgd
                                ? 0.1
                                : std::min(3e-3, 3e-3 * 128 / static_cast<double>(config.d_model));
  if (!plan.has("--min-lr")) options.min_learning_rate = options.learning_rate / 10;
}

// Takes over the saved run. Refuses what a run cannot change; the header of the run lists the
// changes (changes_since).
void resume(Plan& plan, const CheckFiles& check_files) {
  refuse_if(!plan.init.empty(),
            "--resume continues a run and --init starts one: choose one of them");
  const std::string folder = plan.resume.string();
  plan.resumed = read_run(plan.resume, [&](const SavedRun& run) {
    check_files(run.directory, {run.file.filename().string()});
  });
  SavedRun& run = *plan.resumed;
  if (plan.accept_changes) run.checksums.reset();
  if (plan.data.empty()) plan.data = run.data;
  plan.vocabulary = std::make_shared<Vocabulary>(transformer::vocabulary_of(plan.data));
  require_vocabulary_of(run, *plan.vocabulary, plan.data);
  refuse_if(plan.has("--dtype") && plan.dtype != run.dtype,
            "the run in {} is in {}: it cannot continue in {}", folder,
            autograd::name_of(run.dtype), autograd::name_of(plan.dtype));
  refuse_if(plan.has("--optimizer") && plan.options.optimizer != run.options.optimizer,
            "the run in {} has the state of another optimizer than {}: leave out --optimizer",
            folder, name_of(plan.options.optimizer));
  const Plan asked = plan;
  plan.dtype = run.dtype, plan.options = run.options, plan.init = plan.resume;
  if (plan.has("--lr")) plan.options.min_learning_rate = asked.options.learning_rate / 10;
  take_given(asked, plan);
  require(run.step < plan.options.steps,
          "the run in {} has taken its {} steps: ask for more with --steps", folder, run.step);
}

// The model and the training options.
void plan_model(int ranks, Plan& plan, const CheckFiles& check_files) {
  const bool resumes = !plan.resume.empty(), starts = !plan.init.empty();
  plan.vocabulary = std::make_shared<Vocabulary>(transformer::vocabulary_of(plan.data));
  if (resumes || starts) {
    refuse_if(plan.has("--model") || names_sizes(plan),
              "{} brings the model's sizes with it: leave out --model and the sizes",
              starts ? "--init" : "--resume");
    plan.model = (starts ? plan.init : plan.resume).string();
    plan.config = transformer::load_config(plan.model);
  } else {
    choose_config(plan);
  }
  if (resumes) {
    resume(plan, check_files);
  } else {
    if (starts) check_files(plan.init, {});
    if (starts) require_tokenizer_of(plan.init, plan);
    choose_options(plan, plan.data_ranks(ranks));
  }
  if (plan.has("--eval-batches"))
    plan.options.validation_windows = plan.validation_batches * plan.options.batch;
  if (!plan.has("--stop-at")) plan.stop_at = plan.options.steps;
  require_fits(*plan.vocabulary, plan.config);
}

// The micro-batches of a step are known by now.
void plan_pipeline(Plan& plan) {
  const bool pipeline = plan.mesh.shape.size(Axis::pp) > 1;
  for (const char* flag : {"--schedule", "--stages-per-rank"})
    refuse_if(plan.has(flag) && !pipeline, "{} needs a pipeline: add --mesh pp=2, for example",
              flag);
  plan_schedule(plan.mesh, plan.has("--schedule") ? plan.mesh.schedule_name : "1f1b",
                plan.options.accumulate,
                plan.has("--stages-per-rank") ? plan.mesh.stages_per_rank : 0);
}

// Between GPUs there are the collectives of data and tensor parallelism, and no others yet.
void require_calls_of_gpus(const MeshPlan& mesh) {
  const auto refuse = [&](Axis axis, const char* what, const char* calls, bool uses = true) {
    refuse_if(mesh.shape.size(axis) > 1 && uses,
              "{} needs {}, which the backends of GPUs do not have: train on axes dp, fsdp, tp and "
              "cp (--context all_gather), or leave out --device",
              what, calls);
  };
  refuse(Axis::pp, "a pipeline (pp)", "send and recv");
  refuse(Axis::ep, "expert parallel (ep)", "all_to_all");
  refuse(Axis::cp, "--context ulysses", "all_to_all",
         mesh.context.exchange == context_parallel::Exchange::ulysses);
}

// Where the ranks compute and how they communicate.
void plan_ranks(int ranks, int ranks_on_this_machine, Plan& plan) {
  MeshPlan& mesh = plan.mesh;
  if (mesh.shape.size(Axis::cp) > 1 && plan.device != autograd::Device::cpu) {
    if (!plan.has("--context")) mesh.context.exchange = context_parallel::Exchange::all_gather;
    refuse_if(mesh.context.exchange == context_parallel::Exchange::ring,
              "--context ring merges blocks on the CPU only: choose all_gather or ulysses");
  }
  if (plan.device == autograd::Device::cuda) require_calls_of_gpus(mesh);
  const int copies = mesh.given() ? mesh.gradient_ranks() : ranks;
  const bool shards = mesh.shape.size(Axis::fsdp) > 1;
  if (!plan.has("--parallel")) plan.strategy = shards ? "zero3" : copies == 1 ? "single" : "flat";
  refuse_if(plan.strategy == "single" && copies > 1,
            "--parallel single trains on one rank, not on {}: choose another strategy", copies);
  find_strategy(plan.strategy);  // what is wrong with a library is said before ranks start
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (!plan.has("--threads")) plan.threads = std::max(1, cores / ranks_on_this_machine);
}

void plan_outputs(Plan& plan) {
  plan.sample.seed = plan.options.seed;
  if (plan.save.empty()) plan.save = plan.resume;
  refuse_if(plan.save_every > 0 && plan.save.empty(),
            "--save-every needs a folder to save in: name one with --save");
  refuse_if(plan.sample_every > 0 && plan.sample_tokens == 0,
            "--sample-every needs the length of a sample: give it with --sample");
}

}  // namespace

Plan complete(Plan plan, int ranks, int ranks_on_this_machine,
              const std::optional<ElasticSizes>& elastic, const CheckFiles& check_files) {
  plan_mesh(ranks, plan);
  plan_model(elastic ? static_cast<int>(elastic->smallest_batch()) : ranks, plan, check_files);
  plan_pipeline(plan);
  plan_ranks(ranks, ranks_on_this_machine, plan);
  plan_outputs(plan);
  if (!elastic) return plan;
  if (const std::string obstacle = elastic->obstacle(plan); !obstacle.empty())
    throw UsageError(obstacle);
  refuse_if(!plan.trace.empty() || !plan.report.empty(),
            "--trace and --report need the same ranks throughout: leave out --elastic");
  return plan;
}

transformer::Corpus read_data(const Plan& plan) {
  return transformer::read_corpus(plan.data.empty() ? std::vector{transformer::default_corpus()}
                                                    : plan.data);
}

StepRange steps_to_trace(const Plan& plan) {
  const std::int64_t begin = plan.first_step(), end = plan.last_step();
  if (!plan.trace_steps)
    return {std::min(begin + 3, std::max(begin + 1, end - 2)), std::min(begin + 5, end)};
  const auto [first, last] = *plan.trace_steps;
  require(first <= end && last > begin, "cannot trace steps {} to {}: the run takes steps {} to {}",
          first, last, begin + 1, end);
  return {first, last};
}

void check_plan(const Plan& plan, int ranks) {
  const transformer::Corpus corpus = read_data(plan);
  if (plan.resumed) require_text_of(*plan.resumed, corpus.fingerprint());
  validate(plan.options, plan.config, corpus, plan.data_ranks(ranks));
  require(plan.stop_at > plan.first_step(),
          "the run cannot stop after step {}: it has already taken {} steps", plan.stop_at,
          plan.first_step());
  steps_to_trace(plan);
}

void check_memory(const Plan& plan, int ranks, int ranks_on_this_machine) {
  transformer::validate(plan.config);
  // On a GPU each rank checks its own memory, not the launcher.
  if (plan.device == autograd::Device::cuda && !environment("RANK")) return;
  if (plan.mesh.given()) require_divisible(plan.mesh, plan.config, plan.options, plan.strategy);
  const double saved = checkpoint_bytes(plan.config, plan.dtype, plan.options.optimizer);
  require_memory(memory_of_largest_rank(plan, plan.data_ranks(ranks)), ranks_on_this_machine,
                 plan.memory_limit_gb < 0 ? std::nullopt : std::optional(plan.memory_limit_gb),
                 "choose a smaller model or batch, fewer ranks on this machine, or --accumulate "
                 "and --recompute full for fewer activations",
                 plan.device, plan.save_every > 0 ? saved : 0);
}

void prepare_outputs(const Plan& plan) {
  for (const auto& folder : {plan.dump, plan.save}) {
    if (folder.empty()) continue;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    require(!error, "cannot make the folder {}: {}", folder.string(), error.message());
  }
  for (const auto& [path, what] :
       {std::pair(plan.metrics, "metrics"), std::pair(plan.trace, "the trace"),
        std::pair(plan.report, "the report")}) {
    if (path.empty()) continue;
    const bool writable = std::ofstream(path, std::ios::app).is_open();
    require(writable, "cannot write {} to {}: {}", what, path.string(), std::strerror(errno));
  }
  if (plan.save.empty()) return;
  if (!plan.overwrite) require_no_other_run(plan.save, plan.resumed);
  require_no_other_tokenizer(plan.save, *plan.vocabulary);
}

}  // namespace ringside::training
