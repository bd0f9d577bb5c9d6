#include "cli/commands/train/training_plan.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/transport/link.hpp"
#include "training/memory_check.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::cli {
namespace {

// "25.1 MB (parameters 6.3 MB, gradients 6.3 MB, optimizer 12.5 MB)"
std::string memory_text(const training::MemoryNeed& need) {
  const auto text_of = [](double bytes) { return with_unit(bytes) + "B"; };
  return fmt::format("{} ({})", text_of(need.peak), training::memory_in_parts(need, text_of));
}

}  // namespace

training::Options shared_options(const TrainingPlan& plan, const DeviceOption& device) {
  training::Options options = training::shared_options(plan);
  const auto add = [&](const char* name, const auto& value) {
    options.emplace_back(name, fmt::format("{}", value));
  };
  using training::given;
  add("--device", device.name);
  add("--device-backend", device.backend);
  // Sharded tensors are written, and samples are generated, by all ranks together.
  const auto steps = plan.recording.steps;
  add("--trace", given(!plan.recording.trace.empty()));
  add("--trace-steps", steps ? fmt::format("{}-{}", steps->first, steps->second) : "not given");
  add("--report", given(!plan.recording.report.empty()));
  add("--dump", given(!plan.dump.empty()));
  add("--save", given(!plan.save.empty()));
  add("--save-every", plan.save_every);
  add("--sample", plan.sample_tokens);
  add("--sample-every", plan.sample_every);
  add("--temperature", plan.sample.temperature);
  add("--top-k", plan.sample.top_k);
  return options;
}

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
  const int stages = plan.mesh->shape.size(parallel::Axis::pp);
  for (int stage = 0; stage < stages; ++stage)
    lines.push_back(
        fmt::format("{}: {}", stages == 1 ? "each rank" : fmt::format("pp={}", stage),
                    memory_text(training::memory_of_rank(plan, plan.mesh->data_ranks(), stage))));
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
  if (plan.resumed) training::require_text_of(*plan.resumed, bytes.fingerprint());
  const int data_ranks = plan.data_ranks(ranks);
  training::validate(plan.options, plan.config, data_ranks);
  // Throws if the vocabulary cannot encode the beginning of the sample.
  if (plan.sample_tokens > 0) plan.vocabulary->encode_prompt(sample_beginning);
  // Each rank encodes the text for itself. Here it is encoded only if it may be too short, which
  // the number of bytes of the longest token tells.
  const auto counts = plan.vocabulary->byte_counts();
  const std::size_t longest = *std::ranges::max_element(counts);
  if (bytes.training().size() / longest <= static_cast<std::size_t>(plan.options.sequence))
    training::validate(plan.options, plan.config, transformer::Corpus(text, *plan.vocabulary),
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
  const double saved = training::checkpoint_bytes(plan.config, plan.dtype, plan.options.optimizer);
  training::require_memory(
      training::memory_of_largest_rank(plan, plan.data_ranks(ranks)), ranks_on_this_machine,
      plan.memory_limit_gb,
      "choose a smaller model or batch, fewer ranks on this machine, or --accumulate "
      "and --recompute full for fewer activations",
      plan.device, plan.save_every > 0 ? saved : 0);
}

void prepare_outputs(const TrainingPlan& plan) {
  for (const auto& folder : {plan.dump, plan.save}) {
    if (folder.empty()) continue;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    require(!error, "cannot make the folder {}: {}", folder.string(), error.message());
  }
  for (const auto& [path, what] :
       {std::pair(plan.metrics, "metrics"), std::pair(plan.recording.trace, "the trace"),
        std::pair(plan.recording.report, "the report")}) {
    if (path.empty()) continue;
    const bool writable = std::ofstream(path, std::ios::app).is_open();
    require(writable, "cannot write {} to {}: {}", what, path.string(), std::strerror(errno));
  }
  if (plan.save.empty()) return;
  if (!plan.overwrite) training::require_no_other_run(plan.save, plan.resumed);
  training::require_no_other_tokenizer(plan.save, *plan.vocabulary);
}

}  // namespace ringside::cli
