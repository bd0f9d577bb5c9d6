#include "transformer/checkpoint/training_state.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <span>

#include <signal.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "transformer/data/fingerprint.hpp"
#include "transformer/tokenizer/tokenizer_file.hpp"

namespace ringside::transformer {

using autograd::DType;
using autograd::NamedTensor;
using autograd::Tensor;

namespace {

namespace fs = std::filesystem;

constexpr const char* state_key =
    "training_state";  // in the metadata of model.safetensors: the name of the file with the state
constexpr std::string_view state_start = "training-", state_end = ".safetensors";

// Every option that changes the numbers of a run, by name: written, read and compared in one place.
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

// --- Metadata: text in, numbers out

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
          "its metadata has a \"{}\" that is no number", key);
  return number;
}

// --- Checksums: what tells these numbers from all others. Not against malice, but against halves
// of different checkpoints and damage.

std::uint64_t checksum(std::uint64_t sum, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    sum = mix_bits(sum ^ word);
  }
  return sum;
}

// Of tensors that pass by one after the other, with what a header says of them.
struct Inventory {
  std::vector<ArrayView> arrays;  // without bytes
  std::uint64_t sum = 0;

  void add(const NamedTensor& whole) {
    const Tensor home = whole.tensor.to(autograd::Device::cpu);
    ArrayView view = view_of(whole.name, home);
    sum = checksum(sum + 1, view.bytes);
    view.bytes = {};
    arrays.push_back(std::move(view));
  }
};

Inventory inventory_of(const VisitTensors& visit) {
  Inventory inventory;
  visit([&](const NamedTensor& whole) { inventory.add(whole); });
  return inventory;
}

// --- The folder

// A name for the state after `step` that nothing in the folder has.
std::string new_state_name(const fs::path& directory, std::int64_t step) {
  std::string name = fmt::format("{}{}{}", state_start, step, state_end);
  for (int again = 2; fs::exists(directory / name); ++again)
    name = fmt::format("{}{}-{}{}", state_start, step, again, state_end);
  return name;
}

bool is_state_name(const std::string& name) {
  return name.starts_with(state_start) && name.ends_with(state_end) &&
         name.find('/') == std::string::npos;
}

// A file that a process was writing when it was killed: NAME.PID.part (atomic_file.hpp).
bool is_left_behind(const std::string& name) {
  constexpr std::array<std::string_view, 4> ours = {state_start, "model.", "config.", "tokenizer"};
  const bool is_ours = std::any_of(ours.begin(), ours.end(),
                                   [&](std::string_view start) { return name.starts_with(start); });
  if (!is_ours || !name.ends_with(".part")) return false;
  const std::string without = name.substr(0, name.size() - 5);
  const std::size_t dot = without.rfind('.');
  if (dot == std::string::npos) return false;
  int pid = 0;
  const char* const end = without.data() + without.size();
  const bool is_number = std::from_chars(without.data() + dot + 1, end, pid).ptr == end && pid > 0;
  return is_number && ::kill(pid, 0) != 0;
}

// Errors do not matter here: what stays is in the way of nothing.
void remove_old_files(const fs::path& directory, const std::string& state_in_use) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if ((is_state_name(name) && name != state_in_use) || is_left_behind(name))
      fs::remove(entry.path(), ignored);
  }
}

// Whether save_run() wrote this tokenizer.json: a file from elsewhere may say the same in other
// words, and has to be parsed.
bool is_file_of(const Vocabulary& vocabulary, const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Fingerprint fingerprint;
  fingerprint.add(std::string(std::istreambuf_iterator<char>(file), {}));
  return fingerprint.value() == vocabulary.fingerprint();
}

Metadata metadata_of(const Model& model, const Trainer& trainer, std::uint64_t parameters,
                     std::uint64_t state) {
  TrainerOptions options = trainer.options();
  Metadata metadata{{"step", fmt::format("{}", trainer.steps_taken())},
                    {"dtype", autograd::name_of(model.dtype())},
                    {"optimizer", name_of(options.optimizer)},
                    {"text", fmt::format("{}", trainer.corpus().fingerprint())},
                    {"tokenizer", fmt::format("{}", trainer.corpus().vocabulary_fingerprint())},
                    {"parameters", fmt::format("{}", parameters)},
                    {"state", fmt::format("{}", state)}};
  for_each_option(options,
                  [&](const char* name, auto value) { metadata[name] = fmt::format("{}", value); });
  return metadata;
}

SavedRun run_of(const Metadata& metadata) {
  SavedRun run;
  run.step = number_of<std::int64_t>(metadata, "step");
  const std::string& dtype = text_of(metadata, "dtype");
  require(dtype == "fp32" || dtype == "fp64" || dtype == "bf16",
          "its numbers are of type {:.20}, but Ringside trains in fp32, fp64 and bf16", dtype);
  run.dtype = dtype == "fp64" ? DType::fp64 : dtype == "bf16" ? DType::bf16 : DType::fp32;
  const std::string& optimizer = text_of(metadata, "optimizer");
  require(optimizer == "sgd" || optimizer == "adamw",
          "its optimizer is {:.20}, but Ringside has sgd and adamw", optimizer);
  run.options.optimizer = optimizer == "sgd" ? OptimizerKind::sgd : OptimizerKind::adamw;
  run.text = number_of<std::uint32_t>(metadata, "text");
  if (metadata.contains("tokenizer"))
    run.tokenizer = number_of<std::uint32_t>(metadata, "tokenizer");
  for_each_option(run.options, [&](const char* name, auto& value) {
    value = number_of<std::decay_t<decltype(value)>>(metadata, name);
  });
  require(run.step >= 0, "its metadata speaks of step {}", run.step);
  return run;
}

void read_into(SafetensorsFile& file, const NamedTensor& wanted) {
  const auto& [name, tensor] = wanted;
  const Tensor home = tensor.to(autograd::Device::cpu);  // itself, if it is there
  const ArrayView view = view_of(name, home);
  const auto& entry = file.entry(name);
  require(entry.shape == view.shape && entry.type == view.type,
          "'{}' is {} {} in it, but the optimizer's is {} {}", name, safetensors_name(entry.type),
          autograd::to_string(entry.shape), safetensors_name(view.type),
          autograd::to_string(view.shape));
  file.read(name, {home.address(), view.bytes.size()});
  tensor.copy_(home);
}

}  // namespace

void require_place_for(const Vocabulary& vocabulary, const fs::path& directory) {
  const fs::path path = directory / "tokenizer.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  require(!vocabulary.is_bytes(),
          "{} is there, but the tokens of this run are bytes: whoever reads its checkpoint would "
          "take them for that tokenizer's; save in "
          "another folder, or remove the file",
          path.string());
  require(is_file_of(vocabulary, path) ||
              Vocabulary::load(path).fingerprint() == vocabulary.fingerprint(),
          "{} is another tokenizer than this run's ({}): whoever reads its checkpoint would take "
          "its tokens for that one's; save in another "
          "folder, or remove the file",
          path.string(), vocabulary.name());
}

void save_run(const fs::path& directory, const Model& model, const Trainer& trainer,
              const Vocabulary& vocabulary) {
  const VisitTensors parameters = [&](const SeeTensor& see) {
    trainer.strategy().visit_parameters(model, see);
  };
  const VisitTensors state = [&](const SeeTensor& see) {
    trainer.strategy().visit_state(trainer.optimizer(), see);
  };
  // The header of a file stands before its numbers and has their checksums: so everything passes by
  // twice.
  if (trainer.strategy().rank() != 0) {
    for (const VisitTensors& visit : {parameters, state, state, parameters})
      visit([](const NamedTensor&) {});
    return;
  }
  const Inventory of_parameters = inventory_of(parameters), of_state = inventory_of(state);
  std::error_code error;
  fs::create_directories(directory, error);
  require(!error, "cannot make the folder {}: {}", directory.string(), error.message());
  require(vocabulary.fingerprint() == trainer.corpus().vocabulary_fingerprint(),
          "the vocabulary to be saved is not that of the run");
  require_place_for(vocabulary, directory);
  // Before the model: one that needs it is never without it.
  if (vocabulary.tokenizer() && !fs::exists(directory / "tokenizer.json"))
    save_tokenizer(directory, *vocabulary.tokenizer());
  const std::string name = new_state_name(directory, trainer.steps_taken());
  SafetensorsWriter file(directory / name, of_state.arrays,
                         metadata_of(model, trainer, of_parameters.sum, of_state.sum));
  state([&](const NamedTensor& whole) {
    const Tensor home = whole.tensor.to(autograd::Device::cpu);
    file.write(whole.name, view_of(whole.name, home).bytes);
  });
  file.commit();
  try {
    save_checkpoint(directory, model, {{state_key, name}}, parameters);
  } catch (...) {
    fs::remove(directory / name, error);
    throw;
  }
  remove_old_files(directory, name);
}

SavedRun read_run(const fs::path& directory) {
  const SafetensorsFile model(directory / "model.safetensors");
  const auto named = model.metadata().find(state_key);
  require(named != model.metadata().end(),
          "{} holds a model, but no run to go on with (no optimizer's state): start from its "
          "parameters with --init",
          directory.string());
  require(is_state_name(named->second),
          "{} names {:.60} as its optimizer's state, which is no such file",
          (directory / "model.safetensors").string(), named->second);
  const fs::path file = directory / named->second;
  const SafetensorsFile state(file);
  try {
    SavedRun run = run_of(state.metadata());
    run.directory = directory;
    run.file = file;
    return run;
  } catch (const Error& problem) {
    fail("{} is no state of a run: {}", file.string(), problem.what());
  }
}

void load_state(const SavedRun& run, const Model& model, Trainer& trainer) {
  SafetensorsFile file(run.file);
  // Where parameters are shared out it is rank 0 that sees them; if it throws, the others learn of
  // it.
  const Inventory parameters =
      inventory_of([&](const SeeTensor& see) { trainer.strategy().visit_parameters(model, see); });
  require(parameters.arrays.empty() ||
              parameters.sum == number_of<std::uint64_t>(file.metadata(), "parameters"),
          "the parameters in {} are not those that {} was saved with: one of the files was changed "
          "or is damaged; to start from the "
          "parameters alone, use --init",
          run.directory.string(), run.file.filename().string());
  require_text_of(run, trainer.corpus().fingerprint());
  require_vocabulary_of(run, trainer.corpus().vocabulary_fingerprint());
  try {
    std::set<std::string> known;
    Inventory state;
    trainer.strategy().fill_state(trainer.optimizer(), [&](const NamedTensor& wanted) {
      read_into(file, wanted);
      state.add(wanted);
      known.insert(wanted.name);
    });
    for (const auto& [name, entry] : file.entries())
      require(known.contains(name), "it holds '{}', which is not the optimizer's", name);
    require(state.sum == number_of<std::uint64_t>(file.metadata(), "state"),
            "its numbers are not those that were saved: it is damaged");
    trainer.require_same_everywhere(static_cast<double>((state.sum ^ state.sum >> 32) & 0xffffffff),
                                    "the same checkpoint");
  } catch (const Error& problem) {
    fail("cannot go on with {}: {}", run.file.string(), problem.what());
  }
  trainer.resume_at(run.step);
}

void require_text_of(const SavedRun& run, std::uint32_t fingerprint) {
  require(fingerprint == run.text,
          "the text is not the one that the run in {} was trained on: give it the same --data, or "
          "start from its parameters with --init",
          run.directory.string());
}

void require_vocabulary_of(const SavedRun& run, std::uint32_t fingerprint) {
  if (fingerprint == run.tokenizer) return;
  require(run.tokenizer != 0,
          "the run in {} was trained on bytes, and cannot go on with a tokenizer's tokens: leave "
          "out --tokenizer, and take the tokenizer.json "
          "out of the folder if there is one",
          run.directory.string());
  require(fingerprint != 0,
          "the run in {} was trained with a tokenizer, and its tokenizer.json is gone: give it the "
          "same with --tokenizer",
          run.directory.string());
  fail(
      "the tokenizer is not the one that the run in {} was trained with: give it the same with "
      "--tokenizer, or none where its own "
      "tokenizer.json is still there",
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
