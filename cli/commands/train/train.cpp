// `ringside train`: trains a transformer on text, on one rank or many.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/environment.hpp"
#include "cli/commands/train/resume_command.hpp"
#include "cli/commands/train/train_arguments.hpp"
#include "cli/commands/train/training_run.hpp"
#include "cli/options/command.hpp"
#include "cli/options/device_option.hpp"
#include "cli/options/help_formatter.hpp"
#include "cli/options/options.hpp"
#include "cli/options/rank_options.hpp"
#include "cli/options/strategy_name.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/exchange/algorithm_file.hpp"
#include "collectives/process_group.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "training/elastic/membership.hpp"
#include "training/interrupt.hpp"
#include "training/state/training_state.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/recompute_groups.hpp"

namespace ringside::cli {
namespace {

// A step and a checkpoint of a large model take minutes. Who cannot wait sends a second signal.
constexpr Seconds time_to_save{600};

// When ranks are started again, those of other hosts may be faster than the rank 0 before, which
// still writes a checkpoint. With its successor in the group it has ended.
void read_newest_checkpoint(TrainingPlan& plan) {
  if (!plan.resumed) return;
  training::SavedRun& run = *plan.resumed;
  const training::SavedRun newest = training::read_run(run.directory);
  run.step = newest.step;
  run.file = newest.file;
  if (run.checksums) run.checksums = newest.checksums;
}

void train_as_rank(TrainingPlan plan, const DeviceOption& device,
                   collectives::ProcessGroup& group) {
  read_newest_checkpoint(plan);
  training::require_same_options(shared_options(plan, device), group);
  take_device(plan.device);
  join_device(device, plan.device, group);
  plan.backend = group.backend_name();
  Recording recording = recording_of(plan);
  run_training(plan, group, recording);
  recording.write(group,
                  fmt::format("Training {} on {}", plan.model_name, counted(group.size(), "rank")),
                  facts_of(plan, group.size()));
}

// What starts the ranks of a run again that has failed: from its last checkpoint, if it has one.
std::vector<std::string> command_again(const TrainArguments& args) {
  const std::filesystem::path folder =
      args.plan.save.empty() ? std::filesystem::path(args.resume.value_or("")) : args.plan.save;
  if (!std::filesystem::exists(folder / "model.safetensors")) return own_command();
  return {"sh", "-c", "exec " + args.plan.resume_command(false)};
}

void train(const TrainArguments& args) {
  collectives::load_algorithms();
  TrainingPlan plan;
  RanksOption ranks_option = args.ranks;
  if (args.mesh)
    ranks_option.launch.place = [shape = parallel::MeshShape(*args.mesh)](int rank) {
      return shape.describe(rank);
    };
  if (!args.plan.save.empty() || args.resume) ranks_option.launch.grace_after_signal = time_to_save;
  set_elastic(args.elastic, ranks_option.count, ranks_option.launch);
  ranks_option.launch.command_again = [&] { return command_again(args); };
  const auto sizes =
      args.elastic.sizes ? args.elastic.sizes : training::Membership::sizes_from_environment();
  const auto prepare = [&](int ranks, int ranks_here) {
    plan = plan_from(args, ranks, ranks_here, sizes);
    check_memory(plan, sizes ? sizes->smallest : ranks, ranks_here);
    if (environment("RANK")) return;  // the process that started the ranks has checked the rest
    check_plan(plan, ranks);
    prepare_outputs(plan);
  };
  if (sizes)
    run_on_processes(
        ranks_option,
        [&](const collectives::RankInfo& rank_info) { run_elastic_training(plan, rank_info); },
        prepare);
  else
    run_on_ranks(
        ranks_option,
        [&](collectives::ProcessGroup& group, int) { train_as_rank(plan, args.device, group); },
        prepare);
  if (const int signal = training::interrupted_by()) throw Exit{128 + signal};
}

void add_rank_options(const Options& option, TrainArguments& args) {
  option.group("Ranks");
  add_ranks_option(option, args.ranks);
  add_elastic_options(option, args.elastic);
  add_backend_option(option, args.ranks.backend);
  add_link_option(option);
  add_algorithm_option(option);
  option("--parallel NAME", args.plan.strategy,
         fmt::format("The parallel strategy: {}; with fewer bytes bf16_wire, powersgd:RANK, "
                     "local_sgd:STEPS, diloco:STEPS; or NAME.so, your own [one rank single, "
                     "fsdp zero3, else flat]",
                     fmt::join(training::strategy_names(), ", ")),
         strategy_name(training::strategy_names(), {{"fsdp", "zero3"}, {"ddp", "bucketed"}}));
  option("--mesh AXES", args.mesh,
         "Ranks in a grid, such as pp=2,dp=2,tp=2: tp ranks divide every matrix (tensor parallel), "
         "pp ranks the layers (pipeline parallel), cp ranks the tokens of each sequence (context "
         "parallel), ep ranks the batch and the experts (expert parallel), dp and fsdp ranks the "
         "batch. dp ranks hold copies, fsdp ranks shards (zero1, "
         "zero2 or zero3); without fsdp --parallel works along dp. The last axis varies fastest "
         "[all ranks are dp]");
  option.flag("--sequence-parallel", args.sequence_parallel,
              "The tp ranks of --mesh also divide the tokens of each sequence between matrices: "
              "less memory, the same bytes on the wire");
  option("--tensor-parallel FILE.so", args.tensor_library,
         "Your own functions f and row_linear for the tp ranks of --mesh [Ringside's]");
  args.context.add_to(option);
  option(
      "--schedule NAME", args.schedule,
      fmt::format("The order of micro-batches in the pipeline of --mesh: {}, csv:FILE or FILE.so; "
                  "`ringside step pipeline` draws them [1f1b]",
                  pipeline_parallel::schedule_names()));
  option("--stages-per-rank N", args.stages_per_rank,
         "Pipeline stages on each pp rank, with --schedule interleaved, looped_bfs or "
         "interleaved_zb [2]",
         at_least_one("stage"));
  option("--bucket-mb MB", args.plan.bucket_mb,
         "Bucket size of bucketed, zero1_broadcast, zero1 and zero2, in 10^6 bytes [25]",
         positive());
  option("--threads N", args.threads, "Threads of each rank [cores divided by ranks]",
         at_least_one("thread"));
  add_device_option(option, args.device);
  add_device_backend_option(option, args.device);
  add_memory_limit(option, args.plan.memory_limit_gb);
}

void add_model_options(const Options& option, TrainArguments& args) {
  transformer::Config& config = args.plan.config;
  option.group("Model");
  option("--model NAME", args.model,
         fmt::format("A named size: {} [tiny]", fmt::join(transformer::config_names(), ", ")));
  option("--d-model N", config.d_model,
         "Width of the model. It overrides the named size, as do the sizes below");
  option("--layers N", config.layers, "Number of blocks");
  option("--heads N", config.heads, "Query heads");
  option("--kv-heads N", config.kv_heads, "Key and value heads [as many as query heads]");
  option("--d-ff N", config.d_ff, "Width of the feed-forward layers, or of each expert");
  option("--experts N", config.experts,
         "Experts in the place of each feed-forward layer (mixture of experts, as in Mixtral) "
         "[none; moe-tiny: 8]");
  option("--experts-per-token K", config.experts_per_token,
         "Experts that the router chooses for each token [2]");
  option("--balance X", config.balance,
         "Weight of the loss that keeps the load of the experts equal; 0: none [0.01]",
         not_negative());
  option("--vocabulary N", config.vocabulary,
         "Number of tokens; bytes need 256 [tiny: as many as --tokenizer has]");
  option("--sequence N", args.plan.options.sequence,
         "Tokens per sequence: the most that the model can attend to");
  option.flag("--tied-head", config.tied_head, "Share the embedding's matrix with the head");
  option("--init DIR", args.init,
         "Start from the parameters in this folder: config.json and model.safetensors");
  option("--resume DIR", args.resume,
         "Continue the run that was saved in this folder, and save there. Options that are not "
         "given keep their values");
  option.flag("--accept-changes", args.accept_changes,
              "Use the checkpoint although its files were changed after it was saved");
  option("--dtype TYPE", args.dtype,
         "fp32, fp64 or bf16. bf16 stores weights, activations and gradients in 16 bits; sums and "
         "the optimizer use fp32 [fp32]",
         one_of({"fp32", "fp64", "bf16"}));
}

void add_training_options(const Options& option, TrainArguments& args) {
  training::TrainerOptions& options = args.plan.options;
  option.group("Training");
  option("--data PATH", args.plan.data,
         "Text files and directories of text files [the C++ standard library headers]");
  option("--tokenizer PATH", args.tokenizer,
         "A tokenizer.json, or a folder with one; see `ringside tokenize` [the tokenizer of --init "
         "or --resume, else bytes]");
  option("--steps N", options.steps, "Number of steps [100]");
  option("--stop-at N", args.plan.stop_at,
         "Stop after step N, as if interrupted: the learning rate still falls until --steps",
         at_least_one("step"));
  option("--batch N", options.batch,
         "Sequences per step over all ranks [16, or the next multiple of the ranks]");
  option("--accumulate,--micro-batches K", options.accumulate,
         "Split each data rank's batch into K micro-batches: less memory, the same gradients; and "
         "what a pipeline needs to keep its stages busy [1]",
         at_least_one("micro-batch"));
  option("--recompute NAME", args.recompute,
         "What backward computes again: none; full, each block by itself (less memory, a third "
         "more time, the same bits); every=K, groups of K blocks; or nested=K1,K2, groups of K1 "
         "with groups of K2 in them [none]",
         parsed_by([](const std::string& text) { transformer::recompute_groups_from(text); }));
  option("--optimizer NAME", args.optimizer, "sgd or adamw [adamw]", one_of({"sgd", "adamw"}));
  option("--lr RATE", options.learning_rate,
         "Peak learning rate [adamw: 3e-3 for width 128, less for wider models; sgd: 0.1]");
  option("--min-lr RATE", options.min_learning_rate, "Learning rate at the end [a tenth of --lr]");
  option("--warmup N", options.warmup,
         "Steps until the peak learning rate [a tenth of --steps, at most 100]");
  option("--clip NORM", options.clip, "Largest norm of the gradient; 0: no limit [1]");
  option("--weight-decay X", options.weight_decay,
         "Weight decay of matrices, except the embedding [0.1]");
  option("--seed N", options.seed, "Seed of the initial parameters, batches and sample [0]");
  option("--eval-every,--validate-every N", options.validate_every,
         "Validate on held-out text every N steps; 0: only at the end [0]");
  option("--eval-batches N", args.eval_batches,
         "Batches of held-out text per validation [as many as 64 sequences fill]",
         at_least_one("batch"));
}

void add_output_options(const Options& option, TrainArguments& args) {
  TrainingPlan& plan = args.plan;
  option.group("Output");
  option("--metrics FILE", plan.metrics, "Write a JSON line for each step");
  option("--trace FILE", plan.recording.trace,
         "Write a trace of a few steps on every rank, for ui.perfetto.dev or chrome://tracing");
  option("--trace-steps A-B", args.trace_steps, "The steps of --trace and --report [3-5]");
  option("--report FILE", plan.recording.report,
         "Write an HTML page at the end: tracks of every rank, memory over a step, loss");
  option("--dump DIR", plan.dump,
         "Write gradients and parameters after every step: DIR/step0001.safetensors and so on");
  option("--save DIR", plan.save,
         "Save the model at the end: config.json and model.safetensors in the format of Hugging "
         "Face's Llama, and the state for --resume");
  option.flag("--overwrite", plan.overwrite,
              "Let --save replace the model of another run that is in its folder");
  option("--save-every N", plan.save_every, "Save after every N steps, too", at_least_one("step"));
  option("--sample N", plan.sample_tokens, "Generate and print N tokens at the end [0]",
         not_negative());
  option("--sample-every N", plan.sample_every,
         "Print a sample before the first step, and after every N steps, too",
         at_least_one("step"));
  option("--temperature T", plan.sample.temperature,
         "Temperature of the sample; below 1 favours likely tokens; 0: the likeliest only [0.8]",
         not_negative());
  option("--top-k K", plan.sample.top_k, "Sample from the K likeliest tokens; 0: from all [0]",
         not_negative());
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto args = std::make_shared<TrainArguments>();
  CLI::App* command =
      app.add_subcommand("train", "Train a transformer on text, on one rank or many");
  const Options option(*command);
  add_rank_options(option, *args);
  add_model_options(option, *args);
  add_training_options(option, *args);
  add_output_options(option, *args);
  // The last one of a repeated option counts, so that a script can put defaults before the user's
  // options.
  for (CLI::Option* each : command->get_options()) {
    if (each->get_items_expected_max() == 1) each->take_last();
  }
  set_short_help(*command, {"--ranks", "--parallel", "--mesh", "--model", "--data", "--steps",
                            "--batch", "--save", "--resume", "--report", "--sample"});
  command->callback([args, command] {
    for (const CLI::Option* each : command->parse_order()) args->given.insert(each->get_name());
    const std::string folder =
        args->plan.save.empty() ? args->resume.value_or("") : args->plan.save.string();
    const bool outer_launcher = environment("RANK") && !args->ranks.count && !args->elastic.sizes;
    args->plan.resume_command = [=](bool stopped) {
      return (outer_launcher ? "under the same launcher, " : "") +
             command_to_resume(*command, folder, stopped);
    };
    train(*args);
  });
}

}  // namespace ringside::cli
