#include "transformer/checkpoint/saved_run.hpp"

#include <charconv>
#include <type_traits>

#include "base/error.hpp"

namespace ringside::transformer {

namespace {

// Calls visit(name, option) for every option that influences the numbers of a run. Writing, reading
// and comparing all use this list.
template <class Options, class Visit>
void for_each_option(Options& options, Visit&& visit) {
  visit("steps", options.steps);
  visit("batch", options.batch);
  visit("accumulate", options.accumulate);
  visit("sequence", options.sequence);
  visit("seed", options.seed);
  visit("learning_rate", options.learning_rate);
  visit("min_learning_rate", options.min_learning_rate);
  visit("warmup", options.warmup);
  visit("clip", options.clip);
  visit("weight_decay", options.weight_decay);
  visit("beta1", options.beta1);
  visit("beta2", options.beta2);
}

const char* name_of(OptimizerKind kind) {
  return kind == OptimizerKind::sgd ? "sgd" : "adamw";
}

const std::string& text_of(const Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  require(found != metadata.end(), "its metadata has no \"{}\"", key);
  return found->second;
}

template <class Number>
Number number_of(const Metadata& metadata, const std::string& key) {
  const std::string& text = text_of(metadata, key);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(error == std::errc() && end == text.data() + text.size(),
          "its metadata has a \"{}\" that is not a number", key);
  return number;
}

}  // namespace

Metadata metadata_of(const Model& model, const Trainer& trainer, const Checksums& checksums) {
  TrainerOptions options = trainer.options();
  Metadata metadata{{"step", fmt::format("{}", trainer.steps_taken())},
                    {"dtype", autograd::name_of(model.dtype())},
                    {"optimizer", name_of(options.optimizer)},
                    {"text", fmt::format("{}", trainer.corpus().fingerprint())},
                    {"tokenizer", fmt::format("{}", trainer.corpus().vocabulary_fingerprint())},
                    {"parameters", fmt::format("{}", checksums.parameters)},
                    {"state", fmt::format("{}", checksums.state)}};
  for_each_option(options,
                  [&](const char* name, auto value) { metadata[name] = fmt::format("{}", value); });
  return metadata;
}

SavedRun saved_run_from(const Metadata& metadata) {
  SavedRun run;
  run.step = number_of<std::int64_t>(metadata, "step");
  const std::string& dtype = text_of(metadata, "dtype");
  require(dtype == "fp32" || dtype == "fp64" || dtype == "bf16",
          "its dtype is {:.20}, but Ringside trains in fp32, fp64 and bf16", dtype);
  run.dtype = autograd::dtype_named(dtype);
  const std::string& optimizer = text_of(metadata, "optimizer");
  require(optimizer == "sgd" || optimizer == "adamw",
          "its optimizer is {:.20}, but Ringside has sgd and adamw", optimizer);
  run.options.optimizer = optimizer == "sgd" ? OptimizerKind::sgd : OptimizerKind::adamw;
  run.text = number_of<std::uint32_t>(metadata, "text");
  // Files from before there were tokenizers have no such entry.
  if (metadata.contains("tokenizer"))
    run.tokenizer = number_of<std::uint32_t>(metadata, "tokenizer");
  run.checksums = {.parameters = number_of<std::uint64_t>(metadata, "parameters"),
                   .state = number_of<std::uint64_t>(metadata, "state")};
  for_each_option(run.options, [&](const char* name, auto& value) {
    value = number_of<std::decay_t<decltype(value)>>(metadata, name);
  });
  require(run.step >= 0, "its step is {}, but it must be 0 or more", run.step);
  return run;
}

void require_text_of(const SavedRun& run, std::uint32_t fingerprint) {
  require(fingerprint == run.text,
          "the run in {} was trained on another text: give the same --data, or start from its "
          "parameters with --init",
          run.directory.string());
}

void require_vocabulary_of(const SavedRun& run, std::uint32_t fingerprint) {
  if (fingerprint == run.tokenizer) return;
  require(run.tokenizer != 0,
          "the run in {} was trained on bytes and cannot continue with a tokenizer: leave out "
          "--tokenizer, and move the tokenizer.json out of the folder if there is one",
          run.directory.string());
  require(fingerprint != 0,
          "the run in {} was trained with a tokenizer, but its tokenizer.json is missing: give the "
          "same tokenizer with --tokenizer",
          run.directory.string());
  fail(
      "the run in {} was trained with another tokenizer: give the same one with --tokenizer, or "
      "leave out --tokenizer if its own tokenizer.json still exists",
      run.directory.string());
}

std::vector<std::string> changes_since(const SavedRun& run, const TrainerOptions& now) {
  std::vector<std::string> before, changes;
  for_each_option(run.options,
                  [&](const char*, auto value) { before.push_back(fmt::format("{}", value)); });
  std::size_t i = 0;
  for_each_option(now, [&](const char* name, auto value) {
    const std::string after = fmt::format("{}", value);
    if (after != before[i])
      changes.push_back(fmt::format("{} was {} and is {}", name, before[i], after));
    ++i;
  });
  return changes;
}

}  // namespace ringside::transformer
