#include "training/state/saved_run.hpp"

#include <charconv>
#include <sstream>
#include <type_traits>

#include "base/error.hpp"
#include "base/text/printable.hpp"
#include "training/run_options.hpp"

namespace ringside::training {

namespace {

const std::string& text_of(const transformer::Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  require(found != metadata.end(), "its metadata has no \"{}\"", key);
  return found->second;
}

template <class Number>
Number number_of(const transformer::Metadata& metadata, const std::string& key) {
  const std::string& text = text_of(metadata, key);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(error == std::errc() && end == text.data() + text.size(),
          "its metadata has a \"{}\" that is not a number", key);
  return number;
}

// Absolute paths, one in a line; empty if a line cannot hold one of them.
std::string text_of_paths(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> lines;
  for (const auto& path : paths) {
    lines.push_back(std::filesystem::absolute(path).lexically_normal().string());
    if (printable_line(lines.back()) != lines.back()) return "";
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::vector<std::filesystem::path> paths_in(const std::string& text) {
  std::vector<std::filesystem::path> paths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) paths.emplace_back(line);
  return paths;
}

}  // namespace

transformer::Metadata metadata_of(const transformer::Model& model, const Trainer& trainer,
                                  const std::vector<std::filesystem::path>& data) {
  const TrainerOptions& options = trainer.options();
  transformer::Metadata metadata{
      {"step", fmt::format("{}", trainer.steps_taken())},
      {"dtype", autograd::name_of(model.dtype())},
      {"optimizer", name_of(options.optimizer)},
      {"text", fmt::format("{}", trainer.corpus().fingerprint())},
      {"tokenizer", fmt::format("{}", trainer.corpus().vocabulary_fingerprint())}};
  for_each_trainer_option([&](const char*, const char* key, auto field) {
    metadata[key] = fmt::format("{}", options.*field);
  });
  if (!data.empty()) metadata["data"] = text_of_paths(data);
  return metadata;
}

void add_checksums(transformer::Metadata& metadata, const Checksums& checksums) {
  metadata["parameters"] = fmt::format("{}", checksums.parameters);
  metadata["state"] = fmt::format("{}", checksums.state);
}

SavedRun saved_run_from(const transformer::Metadata& metadata) {
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
  run.checksums = Checksums{.parameters = number_of<std::uint64_t>(metadata, "parameters"),
                            .state = number_of<std::uint64_t>(metadata, "state")};
  for_each_trainer_option([&](const char*, const char* key, auto field) {
    using Value = std::decay_t<decltype(run.options.*field)>;
    run.options.*field = number_of<Value>(metadata, key);
  });
  if (metadata.contains("data")) run.data = paths_in(metadata.at("data"));
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
  std::vector<std::string> changes;
  for_each_trainer_option([&](const char*, const char* key, auto field) {
    if (run.options.*field != now.*field)
      changes.push_back(fmt::format("{} was {} and is {}", key, run.options.*field, now.*field));
  });
  return changes;
}

}  // namespace ringside::training
