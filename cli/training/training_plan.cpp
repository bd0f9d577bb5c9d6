#include "cli/training/training_plan.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "cli/report/numbers.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "collectives/transport/link.hpp"
#include "transformer/memory.hpp"

namespace ringside::cli {
namespace {

void make_folder(const std::filesystem::path& directory) {
  if (directory.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  require(!error, "cannot make the folder {}: {}", directory.string(), error.message());
}

// " of another run, after step 100 of 200", as far as it is known.
std::string describe_run_in(const std::filesystem::path& directory) {
  try {
    const transformer::SavedRun run = transformer::read_run(directory);
    return fmt::format(" of another run, after step {} of {}", run.step, run.options.steps);
  } catch (const Error&) {
    return "";
  }
}

void require_no_other_run(const TrainingPlan& plan) {
  std::error_code ignored;
  if (plan.overwrite || !std::filesystem::exists(plan.save / "model.safetensors", ignored)) return;
  if (plan.resumed && std::filesystem::equivalent(plan.resumed->directory, plan.save, ignored))
    return;
  const std::string run = describe_run_in(plan.save), folder = plan.save.string();
  fail("{} already holds a model{}: {}save in another folder, or replace it with --overwrite",
       folder, run, run.empty() ? "" : fmt::format("continue that with --resume {}, ", folder));
}

transformer::MemoryNeed memory_of_largest_rank(const TrainingPlan& plan, int ranks) {
  const int data_ranks = plan.data_ranks(ranks);
  transformer::Held held = held_by(plan.strategy, data_ranks, plan.bucket_mb);
  held.device = plan.device;
  return plan.mesh
             ? memory_on_largest_rank(*plan.mesh, plan.config, plan.options, plan.dtype, held)
             : transformer::memory_needed(plan.config, plan.options, plan.dtype, data_ranks, held);
}

}  // namespace

std::string model_text(const TrainingPlan& plan) {
  return fmt::format("{}: {} parameters in {}", plan.model_name,
                     with_unit(static_cast<double>(transformer::parameter_count(plan.config))),
                     autograd::name_of(plan.dtype));
}

std::string ranks_text(const TrainingPlan& plan, int ranks) {
  const std::string threads = counted(plan.threads, "thread");
  if (ranks == 1) return fmt::format("1, {} each", threads);
  const auto link = collectives::link_from_environment();
  return fmt::format(
      "{} over {}, {}{}{}, {} each", ranks, plan.backend, plan.mesh ? plan.mesh->text() + ", " : "",
      std::filesystem::path(plan.strategy).filename().string(),
      link ? fmt::format(", each behind a link of {}", to_text(*link)) : "", threads);
}

std::string batch_text(const TrainingPlan& plan, int ranks) {
  return fmt::format("{} sequences of {} {}, {} on each {}rank", plan.options.batch,
                     plan.options.sequence, plan.vocabulary->is_bytes() ? "bytes" : "tokens",
                     plan.options.batch / plan.data_ranks(ranks),
                     plan.divides_model() ? "data " : "");
}

std::vector<std::string> memory_texts(const TrainingPlan& plan) {
  std::vector<std::string> lines;
  if (!plan.mesh) return lines;
  auto held = held_by(plan.strategy, plan.mesh->data_ranks(), plan.bucket_mb);
  held.device = plan.device;
  const int stages = plan.mesh->shape.size(parallel::Axis::pp);
  std::string same;  // of the stages from `first` on
  int first = 0;
  const auto end_line = [&](int last) {
    const std::string who = stages == 1     ? "each rank"
                            : first == last ? fmt::format("pp={}", first)
                                            : fmt::format("pp={} to {}", first, last);
    lines.push_back(fmt::format("{}: {}", who, same));
  };
  for (int stage = 0; stage < stages; ++stage) {
    const std::string here = memory_text(
        memory_of_stage(*plan.mesh, plan.config, plan.options, plan.dtype, stage, held));
    if (stage > 0 && here != same) {
      end_line(stage - 1);
      first = stage;
    }
    same = here;
  }
  end_line(stages - 1);
  return lines;
}

std::string data_text(const TrainingPlan& plan) {
  if (plan.data.empty())
    return transformer::default_corpus().string() +
           " (the standard library of this program's compiler)";
  std::vector<std::string> names;
  for (const auto& path : plan.data) names.push_back(path.string());
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<std::pair<std::string, std::string>> facts_of(const TrainingPlan& plan, int ranks) {
  return {{"model", model_text(plan)},
          {"ranks", ranks_text(plan, ranks)},
          {"batch", batch_text(plan, ranks)},
          {"text", data_text(plan)}};
}

transformer::Text read_data(const TrainingPlan& plan) {
  return transformer::read_text(plan.data.empty() ? std::vector{transformer::default_corpus()}
                                                  : plan.data);
}

Recording recording_of(const TrainingPlan& plan) {
  return {plan.recording, plan.first_step(), plan.last_step()};
}

void check_plan(const TrainingPlan& plan, int ranks) {
  const transformer::Bytes text = read_data(plan).bytes;
  const transformer::Corpus bytes(text);
  if (plan.resumed) transformer::require_text_of(*plan.resumed, bytes.fingerprint());
  const int data_ranks = plan.data_ranks(ranks);
  transformer::validate(plan.options, plan.config, data_ranks);
  // Throws if the vocabulary cannot encode the beginning of the sample.
  if (plan.sample_tokens > 0) plan.vocabulary->encode_prompt(sample_beginning);
  // Each rank encodes the text for itself. Here it is encoded only if it may be too short, which
  // the number of bytes of the longest token tells.
  const auto counts = plan.vocabulary->byte_counts();
  const std::size_t longest = *std::max_element(counts.begin(), counts.end());
  if (bytes.training().size() / longest <= static_cast<std::size_t>(plan.options.sequence))
    transformer::validate(plan.options, plan.config, transformer::Corpus(text, *plan.vocabulary),
                          data_ranks);
  require(plan.stop_at > plan.first_step(),
          "the run cannot stop after step {}: it has already taken {} steps", plan.stop_at,
          plan.first_step());
  recording_of(plan);
}

void check_memory(const TrainingPlan& plan, int ranks, int ranks_on_this_machine) {
  transformer::validate(plan.config);
  // On a GPU each rank checks its own memory, not the launcher.
  if (plan.device == autograd::Device::cuda && !environment("RANK")) return;
  if (plan.mesh) require_divisible(*plan.mesh, plan.config, plan.options, plan.strategy);
  require_memory(memory_of_largest_rank(plan, ranks), ranks_on_this_machine, plan.memory_limit_gb,
                 "choose a smaller model or batch, fewer ranks on this machine, or --accumulate "
                 "and --checkpoint-activations for fewer activations",
                 plan.device);
}

void prepare_outputs(const TrainingPlan& plan) {
  make_folder(plan.dump);
  make_folder(plan.save);
  for (const auto& [path, what] :
       {std::pair(plan.metrics, "metrics"), std::pair(plan.recording.trace, "the trace"),
        std::pair(plan.recording.report, "the report")}) {
    if (path.empty()) continue;
    const bool writable = std::ofstream(path, std::ios::app).is_open();
    require(writable, "cannot write {} to {}: {}", what, path.string(), std::strerror(errno));
  }
  if (plan.save.empty()) return;
  require_no_other_run(plan);
  transformer::require_no_other_tokenizer(plan.save, *plan.vocabulary);
}

}  // namespace ringside::cli
