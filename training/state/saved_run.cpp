#include "training/state/saved_run.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/read_number.hpp"
#include "base/text/words.hpp"
#include "training/plan/options.hpp"

namespace ringside::training {

namespace {

const std::string& text_of(const transformer::Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  require(found != metadata.end(), "its metadata has no \"{}\"", key);
  return found->second;
}

template <class Number>
Number number_of(const transformer::Metadata& metadata, const std::string& key) {
  const auto number = decimal_number<Number>(text_of(metadata, key));
  require(number.has_value(), "its metadata has a \"{}\" that is not a number", key);
  return *number;
}

// The options that a checkpoint's metadata has.
std::vector<Option> kept_options(Plan& plan) {
  std::vector<Option> rows = options_of(plan);
  std::erase_if(rows, [](const Option& row) { return !row.is_in_metadata(); });
  return rows;
}

void read_entry(const Option& row, const transformer::Metadata& metadata) {
  const std::string key(row.kept);
  if (row.kind == Option::list) {  // no entry: unknown, or the default
    std::istringstream lines(metadata.contains(key) ? metadata.at(key) : "");
    for (std::string line; std::getline(lines, line);) row.set(line);
    return;
  }
  const std::string& text = text_of(metadata, key);
  require(row.names.empty() || std::ranges::count(row.names, text) > 0,
          "its {} is {:.20}, but Ringside {} {}", key, text, key == "dtype" ? "trains in" : "has",
          enumerate(row.names));
  require(row.set(text), "its metadata has a \"{}\" that is not a number", key);
}

}  // namespace

transformer::Metadata metadata_of(const transformer::Model& model, const Trainer& trainer,
                                  const std::vector<std::filesystem::path>& data) {
  transformer::Metadata metadata{
      {"step", fmt::format("{}", trainer.steps_taken())},
      {"text", fmt::format("{}", trainer.corpus().fingerprint())},
      {"tokenizer", fmt::format("{}", trainer.corpus().vocabulary().fingerprint())}};
  Plan plan;
  plan.options = trainer.options(), plan.dtype = model.dtype(), plan.data = data;
  for (const Option& row : kept_options(plan))
    if (const std::string text = row.get(); !text.empty()) metadata[std::string(row.kept)] = text;
  return metadata;
}

void add_checksums(transformer::Metadata& metadata, const Checksums& checksums) {
  metadata["parameters"] = fmt::format("{}", checksums.parameters);
  metadata["state"] = fmt::format("{}", checksums.state);
}

SavedRun saved_run_from(const transformer::Metadata& metadata) {
  SavedRun run;
  run.step = number_of<std::int64_t>(metadata, "step");
  run.text = number_of<std::uint32_t>(metadata, "text");
  // Files from before there were tokenizers have no such entry.
  if (metadata.contains("tokenizer"))
    run.tokenizer = number_of<std::uint32_t>(metadata, "tokenizer");
  run.checksums = Checksums{.parameters = number_of<std::uint64_t>(metadata, "parameters"),
                            .state = number_of<std::uint64_t>(metadata, "state")};
  Plan plan;
  for (const Option& row : kept_options(plan)) read_entry(row, metadata);
  run.dtype = plan.dtype, run.options = plan.options, run.data = plan.data;
  require(run.step >= 0, "its step is {}, but it must be 0 or more", run.step);
  return run;
}

std::string command_to_encode(const std::filesystem::path& tokenizer,
                              const std::vector<std::filesystem::path>& text) {
  std::string command = "ringside tokenize --tokenizer " + tokenizer.string();
  if (!text.empty()) command += " --data";
  for (const auto& path : text) command += " " + path.string();
  return command + " --out NAME.u16";
}

void require_text_of(const SavedRun& run, std::uint32_t fingerprint) {
  require(fingerprint == run.text,
          "the run in {} was trained on another text: give the same --data, or start from its "
          "parameters with --init",
          run.directory.string());
}

void require_vocabulary_of(const SavedRun& run, const transformer::Vocabulary& vocabulary,
                           const std::vector<std::filesystem::path>& data) {
  if (vocabulary.fingerprint() == run.tokenizer) return;
  const std::string folder = run.directory.string();
  require(run.tokenizer != 0,
          "the run in {} was trained on bytes and cannot continue with the tokens in {}: give its "
          "text with --data",
          folder, vocabulary.name());
  require(!vocabulary.is_bytes(),
          "the run in {} was trained with a tokenizer, and its text must be encoded: {}, then add "
          "--data NAME.u16",
          folder, command_to_encode(folder, data));
  fail(
      "the run in {} was trained with another tokenizer than that of {}: encode the text with its "
      "own ({})",
      folder, vocabulary.name(), command_to_encode(folder, {}));
}

std::vector<std::string> changes_since(const SavedRun& run, const TrainerOptions& now) {
  std::vector<std::string> changes;
  Plan before, after;
  before.options = run.options, after.options = now;
  const std::vector<Option> old_rows = kept_options(before), new_rows = kept_options(after);
  for (std::size_t i = 0; i < old_rows.size(); ++i)
    if (const std::string was = old_rows[i].get(), is = new_rows[i].get(); was != is)
      changes.push_back(fmt::format("{} was {} and is {}", old_rows[i].kept, was, is));
  const double as_before = run.options.rates().at(run.step), next = now.rates().at(run.step);
  if (next != as_before && run.step > 0)
    changes.push_back(
        fmt::format("the learning rate was {:.3g} in step {} and is {:.3g} in step {}",
                    run.options.rates().at(run.step - 1), run.step, next, run.step + 1));
  return changes;
}

}  // namespace ringside::training
