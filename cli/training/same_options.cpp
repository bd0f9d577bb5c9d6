#include "cli/training/same_options.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/words.hpp"

namespace ringside::cli {
namespace {

using collectives::DataType;
using collectives::ProcessGroup;

std::string given(bool is_given) {
  return is_given ? "given" : "not given";
}

// Appends options to a list.
class Adder {
 public:
  explicit Adder(Options& options) : options_(options) {}
  template <class Value>
  void operator()(const char* name, const Value& value) const {
    options_.emplace_back(name, fmt::format("{}", value));
  }

 private:
  Options& options_;
};

void add_model(const TrainingPlan& plan, const Adder& add) {
  const auto& config = plan.config;
  add("--vocabulary", config.vocabulary);
  add("--d-model", config.d_model);
  add("--layers", config.layers);
  add("--heads", config.heads);
  add("--kv-heads", config.kv_heads);
  add("--d-ff", config.d_ff);
  add("--tied-head", given(config.tied_head));
  add("--dtype", autograd::name_of(plan.dtype));
  add("--init", given(!plan.init.empty()));
  add("--resume",
      plan.resumed ? fmt::format("the run after step {}", plan.resumed->step) : "not given");
}

void add_ranks(const TrainingPlan& plan, const DeviceOption& device, const Adder& add) {
  add("--device", device.name);
  add("--device-backend", device.backend);
  add("--parallel", plan.strategy);
  add("--bucket-mb", plan.bucket_mb);
  add("--mesh", plan.mesh ? plan.mesh->shape.text() : "not given");
  add("--sequence-parallel", given(plan.mesh && plan.mesh->sequence_parallel));
  add("--schedule",
      plan.mesh && !plan.mesh->schedule_name.empty() ? plan.mesh->schedule_name : "not given");
  add("--stages-per-rank", plan.mesh && plan.mesh->schedule.ranks() > 0
                               ? plan.mesh->schedule.stages() / plan.mesh->schedule.ranks()
                               : 1);
}

void add_training(const TrainingPlan& plan, const Adder& add) {
  const auto& trainer = plan.options;
  add("--steps", trainer.steps);
  add("--stop-at", plan.stop_at);
  add("--batch", trainer.batch);
  add("--sequence", trainer.sequence);
  add("--accumulate", trainer.accumulate);
  add("--checkpoint-activations", given(trainer.checkpoint_activations));
  add("--seed", trainer.seed);
  add("--optimizer", trainer.optimizer == transformer::OptimizerKind::sgd ? "sgd" : "adamw");
  add("--lr", trainer.learning_rate);
  add("--min-lr", trainer.min_learning_rate);
  add("--warmup", trainer.warmup);
  add("--clip", trainer.clip);
  add("--weight-decay", trainer.weight_decay);
  add("--eval-every", trainer.validate_every);
  add("--eval-batches", static_cast<double>(trainer.validation_windows) /
                            static_cast<double>(std::max<std::int64_t>(1, trainer.batch)));
}

// Sharded tensors are written, and samples are generated, by all ranks together.
void add_outputs(const TrainingPlan& plan, const Adder& add) {
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
}

// The texts of all ranks. They may have different lengths, so each is filled up to the longest.
std::vector<std::string> gather_texts(std::string text, ProcessGroup& group) {
  std::vector<std::int64_t> longest{static_cast<std::int64_t>(text.size())};
  group.all_reduce(std::span(longest), collectives::ReduceOp::max, "length of the options");
  text.resize(static_cast<std::size_t>(longest.front()), '\0');
  std::string all(text.size() * static_cast<std::size_t>(group.size()), '\0');
  group.all_gather({text.data(), text.size(), DataType::uint8},
                   {all.data(), all.size(), DataType::uint8}, "options");
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < all.size(); begin += text.size())
    texts.emplace_back(all.data() + begin, text.size());
  return texts;
}

// One line for each option: its value. The names are known.
std::string text_of(const Options& options) {
  std::string text;
  for (const auto& [name, value] : options) text += value + '\n';
  return text;
}

std::vector<std::string> values_of(std::string_view text, std::size_t count) {
  std::vector<std::string> values;
  for (std::size_t begin = 0; values.size() < count;) {
    const std::size_t end = text.find('\n', begin);
    require(end != text.npos,
            "a rank has fewer options: the ranks run different versions of "
            "ringside. Install the same one on every host");
    values.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

// "--lr is 0.1 on ranks 0 and 2, 0.2 on rank 1"; empty if all values are equal. `values` has one
// for each rank.
std::string difference(const std::string& name, const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks_with;  // in the order of ranks
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    auto found = std::find_if(ranks_with.begin(), ranks_with.end(),
                              [&](const auto& each) { return each.first == values[rank]; });
    if (found == ranks_with.end()) found = ranks_with.insert(found, {values[rank], {}});
    found->second.push_back(static_cast<int>(rank));
  }
  if (ranks_with.size() == 1) return "";
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : ranks_with)
    parts.push_back(fmt::format("{} on {}", value, ranks_in_words(ranks)));
  return fmt::format("{} is {}", name, fmt::join(parts, ", "));
}

}  // namespace

Options shared_options(const TrainingPlan& plan, const DeviceOption& device) {
  Options options;
  const Adder add(options);
  add_model(plan, add);
  add_ranks(plan, device, add);
  add_training(plan, add);
  add_outputs(plan, add);
  return options;
}

void require_same_options(const Options& mine, ProcessGroup& group) {
  std::vector<std::vector<std::string>> values(mine.size());  // [option][rank]
  for (const std::string& text : gather_texts(text_of(mine), group)) {
    const auto of_rank = values_of(text, mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) values[i].push_back(of_rank[i]);
  }
  std::vector<std::string> differences;
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (const auto words = difference(mine[i].first, values[i]); !words.empty())
      differences.push_back(words);
  require(differences.empty(),
          "the ranks have different options: {}. Start every rank with the same options",
          fmt::join(differences, "; "));
}

}  // namespace ringside::cli
