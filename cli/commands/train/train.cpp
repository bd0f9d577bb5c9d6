// `ringside train`: trains a transformer on text, on one rank or many.

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "cli/commands/train/elastic_option.hpp"
#include "cli/commands/train/resume_command.hpp"
#include "cli/commands/train/run_printer.hpp"
#include "cli/commands/train/unchanged_checkpoint.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/options/command.hpp"
#include "cli/options/device_option.hpp"
#include "cli/options/option_checks.hpp"
#include "cli/options/options.hpp"
#include "cli/options/rank_options.hpp"
#include "cli/options/training_options.hpp"
#include "cli/program/other_programs.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/process_group.hpp"
#include "training/elastic/elastic_run.hpp"
#include "training/elastic/membership.hpp"
#include "training/interrupt.hpp"
#include "training/plan/prepare.hpp"
#include "training/plan/same_options.hpp"
#include "training/product_calibration.hpp"
#include "training/state/training_state.hpp"

namespace ringside::cli {
namespace {

// A step and a checkpoint of a large model take minutes. Who cannot wait sends a second signal.
constexpr Seconds time_to_save{600};

struct TrainArguments {
  const CLI::App* command = nullptr;
  RanksOption ranks;
  ElasticOption elastic;
  training::Plan plan;  // what the user has given
  std::string against;  // empty: nothing to compare with
  ResumeCommand resume_command;
};

// When ranks are started again, those of other hosts may be faster than the rank 0 before, which
// still writes a checkpoint. With its successor in the group it has ended.
void read_newest_checkpoint(training::Plan& plan) {
  if (!plan.resumed) return;
  training::SavedRun& run = *plan.resumed;
  const training::SavedRun newest = training::read_run(run.directory);
  run.step = newest.step;
  run.file = newest.file;
  if (run.checksums) run.checksums = newest.checksums;
}

DeviceOption device_of(const training::Plan& plan) {
  return {autograd::name_of(plan.device), plan.device_backend};
}

void train_as_rank(const TrainArguments& args, training::Plan plan,
                   collectives::ProcessGroup& group) {
  read_newest_checkpoint(plan);
  training::require_same_options(training::shared_options(plan), group);
  take_device(plan.device);
  join_device(device_of(plan), plan.device, group);
  training::begin_computing(plan.threads);
  const transformer::Corpus corpus = training::read_data(plan);
  RunPrinter printer(plan, args.resume_command);
  training::Run(plan, corpus, printer).run(group);
  printer.write_recording(group);
}

// The same for a rank of an elastic run, whose members the launcher chooses.
void train_as_elastic_rank(const TrainArguments& args, const training::Plan& plan,
                           const collectives::RankInfo& rank_info) {
  training::begin_computing(plan.threads);
  const transformer::Corpus corpus = training::read_data(plan);
  RunPrinter printer(plan, args.resume_command);
  training::ElasticRun(plan, rank_info, args.ranks.backend, corpus, printer).run();
}

// What starts the ranks of a run again that has failed: from its last checkpoint, if it has one.
std::vector<std::string> command_again(const TrainArguments& args) {
  const auto& folder = args.plan.save.empty() ? args.plan.resume : args.plan.save;
  if (!std::filesystem::exists(folder / "model.safetensors")) return own_command();
  return {"sh", "-c", "exec " + args.resume_command(false)};
}

// The plan for so many ranks, with all that can be checked before it runs.
training::Plan checked_plan(const TrainArguments& args, int ranks, int ranks_here,
                            const std::optional<training::ElasticSizes>& sizes) {
  const bool accepts = args.plan.accept_changes;
  // One rank of each machine reads the files that the run starts from. What the user accepts, the
  // process that starts the ranks has said.
  const auto check_files = [&](const std::filesystem::path& checkpoint,
                               const std::vector<std::string>& more) {
    if (!another_rank_reports() && !(accepts && started_by_same_command()))
      require_unchanged(checkpoint, accepts, more);
  };
  training::Plan plan = training::complete(args.plan, ranks, ranks_here, sizes, check_files);
  device_from(device_of(plan), plan.dtype);
  require_processes_for(device_of(plan), {args.ranks.backend}, ranks);
  refuse_if(sizes && args.ranks.backend == "threads",
            "--elastic survives the loss of a process: leave out --backend threads");
  training::check_memory(plan, sizes ? sizes->smallest : ranks, ranks_here);
  if (environment("RANK")) return plan;  // the process that started the ranks has checked the rest
  training::check_plan(plan, ranks);
  training::prepare_outputs(plan);
  return plan;
}

// The arguments with what the command line says of itself.
TrainArguments with_given_options(TrainArguments args) {
  const std::vector<GivenOption> given = given_options(*args.command);
  for (const GivenOption& each : given) args.plan.given.insert(each.name);
  const std::string folder = (args.plan.save.empty() ? args.plan.resume : args.plan.save).string();
  const bool outer_launcher = environment("RANK") && !args.ranks.count && !args.elastic.sizes;
  args.resume_command = [=](bool stopped) {
    return (outer_launcher ? "under the same launcher, " : "") +
           command_to_resume(given, folder, stopped);
  };
  return args;
}

// Python runs this command without --against and then with one process, and compares the two
// (python/ringside/lab/against.py). What is wrong with the options, it says before that.
[[noreturn]] void train_and_compare(const TrainArguments& args, const RanksOption& ranks,
                                    const std::optional<training::ElasticSizes>& sizes) {
  refuse_if(
      environment("RANK") || environment("OMPI_COMM_WORLD_RANK") || collectives::started_by_srun(),
      "--against starts the ranks itself, twice: leave out the launcher, and give -n");
  refuse_if(!args.plan.resume.empty(),
            "--against compares whole runs: leave out --resume, or start from the checkpoint with "
            "--init");
  const training::Plan plan = checked_plan(args, ranks.wanted(), ranks.wanted(), sizes);
  ::setenv("RINGSIDE_TRAIN_BATCH", std::to_string(plan.options.batch).c_str(), 1);
  become_python("train");
}

void train(const TrainArguments& arguments) {
  const TrainArguments args = with_given_options(arguments);
  collectives::load_algorithms();
  RanksOption ranks_option = args.ranks;
  if (args.plan.mesh.given())
    ranks_option.launch.place = [shape = args.plan.mesh.shape](int rank) {
      return shape.describe(rank);
    };
  if (!args.plan.save.empty() || !args.plan.resume.empty())
    ranks_option.launch.grace_after_signal = time_to_save;
  set_elastic(args.elastic, ranks_option.count, ranks_option.launch);
  ranks_option.launch.command_again = [&] { return command_again(args); };
  const auto sizes =
      args.elastic.sizes ? args.elastic.sizes : training::Membership::sizes_from_environment();
  if (!args.against.empty()) train_and_compare(args, ranks_option, sizes);
  training::Plan plan;
  const auto prepare = [&](int ranks, int ranks_here) {
    plan = checked_plan(args, ranks, ranks_here, sizes);
  };
  if (sizes)
    run_on_processes(
        ranks_option,
        [&](const collectives::RankInfo& rank_info) {
          train_as_elastic_rank(args, plan, rank_info);
        },
        prepare);
  else
    run_on_ranks(
        ranks_option,
        [&](collectives::ProcessGroup& group, int) { train_as_rank(args, plan, group); }, prepare);
  if (const int signal = training::interrupted_by()) throw Exit{128 + signal};
}

}  // namespace

void add_train_command(CLI::App& app) {
  const auto [option, args] =
      add_command(app, "train", "Train a transformer on text, on one rank or many", train);
  args.command = &option.command();
  option.group("Ranks");
  add_ranks_option(option, args.ranks);
  add_elastic_options(option, args.elastic);
  add_backend_option(option, args.ranks.backend);
  add_link_option(option);
  add_algorithm_option(option);
  add_training_options(option, args.plan);
  option("--against NAME", args.against,
         "one-process: train again with one process, and compare gradients and parameters after "
         "the first and the last step",
         one_of({"one-process"}));
  const auto refuse = [](const std::string& tokenizer) {
    refuse_if(true,
              "train reads text that is encoded already: type `ringside tokenize --tokenizer {} "
              "--data TEXT --out NAME.u16`, and then `ringside train --data NAME.u16`",
              tokenizer);
  };
  option.with("--tokenizer PATH", refuse, "").hide();
  // So that a script can put defaults before the user's options.
  option.last_ones_count();
  option.short_help({"--ranks", "--parallel", "--mesh", "--model", "--data", "--steps", "--batch",
                     "--save", "--resume", "--report", "--sample"});
}

}  // namespace ringside::cli
