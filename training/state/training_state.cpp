#include "training/state/training_state.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/read_file.hpp"
#include "training/state/state_files.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"

namespace ringside::training {

using transformer::ArrayView;
using transformer::Metadata;
using transformer::Model;
using transformer::SafetensorsFile;
using transformer::SeeTensor;
using transformer::VisitTensors;
using transformer::Vocabulary;

using autograd::NamedTensor;
using autograd::Tensor;

namespace {

namespace fs = std::filesystem;

// In the metadata of model.safetensors: the name of the state file.
constexpr const char* state_key = "training_state";

std::uint64_t add_bytes(std::uint64_t sum, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    sum = mix_bits(sum ^ word);
  }
  return sum;
}

// The names and shapes of visited tensors, for the header of a file, and their checksum.
struct Inventory {
  std::vector<ArrayView> arrays;  // without bytes
  std::uint64_t checksum = 0;

  void add(const NamedTensor& whole) {
    const Tensor on_cpu = whole.tensor.to(autograd::Device::cpu);
    ArrayView view = transformer::view_of(whole.name, on_cpu);
    checksum = add_bytes(checksum + 1, view.bytes);
    view.bytes = {};
    arrays.push_back(std::move(view));
  }
};

Inventory inventory_of(const VisitTensors& visit) {
  Inventory inventory;
  visit([&](const NamedTensor& whole) { inventory.add(whole); });
  return inventory;
}

// Reads one tensor of the optimizer's state. Its type must be exactly the stored one.
void read_state(SafetensorsFile& file, const NamedTensor& wanted) {
  const auto& [name, tensor] = wanted;
  const Tensor on_cpu = tensor.to(autograd::Device::cpu);  // on the CPU this is `tensor` itself
  const ArrayView view = transformer::view_of(name, on_cpu);
  const auto& entry = file.entry(name);
  require(entry.shape == view.shape && entry.type == view.type,
          "it has '{}' as {} {}, but the optimizer's is {} {}", name, safetensors_name(entry.type),
          autograd::to_string(entry.shape), safetensors_name(view.type),
          autograd::to_string(view.shape));
  file.read(name, {on_cpu.address(), view.bytes.size()});
  tensor.copy_(on_cpu);
}

// What a checkpoint is written from.
struct Contents {
  std::int64_t step = 0;
  Metadata metadata;  // of the state file
  VisitTensors parameters, state;
};

Contents contents_of(const Model& model, const Trainer& trainer, const Vocabulary& vocabulary,
                     const std::vector<fs::path>& data) {
  require(vocabulary.fingerprint() == trainer.corpus().vocabulary().fingerprint(),
          "the vocabulary to be saved is not the one of the run's corpus");
  return {
      .step = trainer.steps_taken(),
      .metadata = metadata_of(model, trainer, data),
      .parameters = [&](const SeeTensor& see) { trainer.strategy().visit_parameters(model, see); },
      .state =
          [&](const SeeTensor& see) { trainer.strategy().visit_state(trainer.optimizer(), see); }};
}

// Visits copies on the CPU. On ranks other than 0 `visit` shows nothing if tensors are sharded, and
// nobody needs what it shows otherwise.
VisitTensors copied(const VisitTensors& visit, bool keeps) {
  std::vector<NamedTensor> copies;
  visit([&](const NamedTensor& whole) {
    if (!keeps) return;
    const Tensor copy = Tensor::empty(whole.tensor.shape(), whole.tensor.dtype());
    copy.copy_(whole.tensor);
    copies.push_back({whole.name, copy});
  });
  return [copies = std::move(copies)](const SeeTensor& see) {
    for (const NamedTensor& copy : copies) see(copy);
  };
}

// Everything is visited twice: the header of a file comes before its numbers, and contains their
// checksum.
void write_run(const fs::path& directory, const Model& model, Contents run,
               const Vocabulary& vocabulary) {
  const Inventory of_parameters = inventory_of(run.parameters), of_state = inventory_of(run.state);
  std::error_code error;
  fs::create_directories(directory, error);
  require(!error, "cannot create the directory {}: {}", directory.string(), error.message());
  require_no_other_tokenizer(directory, vocabulary);
  // Before the model, so that no model is ever without its tokenizer.
  vocabulary.save(directory);
  const std::string name = new_state_name(directory, run.step);
  add_checksums(run.metadata, {of_parameters.checksum, of_state.checksum});
  transformer::SafetensorsWriter file(directory / name, of_state.arrays, run.metadata);
  run.state([&](const NamedTensor& whole) {
    const Tensor on_cpu = whole.tensor.to(autograd::Device::cpu);
    file.write(whole.name, transformer::view_of(whole.name, on_cpu).bytes);
  });
  file.commit();
  try {
    save_checkpoint(directory, model, {{state_key, name}}, run.parameters);
  } catch (...) {
    fs::remove(directory / name, error);
    throw;
  }
  remove_old_files(directory, name);
}

}  // namespace

void require_no_other_tokenizer(const fs::path& directory, const Vocabulary& vocabulary) {
  const fs::path path = directory / "tokenizer.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  require(!vocabulary.is_bytes(),
          "{} exists, but the tokens of this run are bytes: its checkpoint would be read with that "
          "tokenizer; save to another folder, or remove the file",
          path.string());
  require(vocabulary.is_of(read_file(path)),
          "{} is not the tokenizer of this run (that of {}): its checkpoint would be read with the "
          "wrong "
          "one; save to another folder, or remove the file",
          path.string(), vocabulary.name());
}

void save_run(const fs::path& directory, const Model& model, const Trainer& trainer,
              const Vocabulary& vocabulary, const std::vector<fs::path>& data) {
  Contents run = contents_of(model, trainer, vocabulary, data);
  if (trainer.strategy().writes()) return write_run(directory, model, std::move(run), vocabulary);
  // As often as write_run() does on rank 0, so that this rank sends its shards.
  for (const VisitTensors& visit : {run.parameters, run.state, run.state, run.parameters})
    visit([](const NamedTensor&) {});
}

std::function<void()> copy_run(const fs::path& directory, const Model& model,
                               const Trainer& trainer, const Vocabulary& vocabulary,
                               const std::vector<fs::path>& data) {
  const bool writes = trainer.strategy().writes();
  Contents run = contents_of(model, trainer, vocabulary, data);
  run.parameters = copied(run.parameters, writes);
  run.state = copied(run.state, writes);
  if (!writes) return [] {};
  return [directory, &model, &vocabulary, run = std::move(run)]() mutable {
    write_run(directory, model, std::move(run), vocabulary);
  };
}

void require_no_other_run(const fs::path& directory, const std::optional<SavedRun>& resumed) {
  std::error_code ignored;
  if (!fs::exists(directory / "model.safetensors", ignored) &&
      !fs::exists(directory / "model.safetensors.index.json", ignored))
    return;
  if (resumed && fs::equivalent(resumed->directory, directory, ignored)) return;
  const std::string folder = directory.string();
  std::string known, advice;
  try {
    const SavedRun other = read_run(directory);
    known = fmt::format(" of another run, after step {} of {}", other.step, other.options.steps);
    advice = fmt::format("continue that with --resume {}, ", folder);
  } catch (const Error&) {  // a model without the state of a run
  }
  fail("{} already holds a model{}: {}save in another folder, or replace it with --overwrite",
       folder, known, advice);
}

namespace {

// The state file that the model in the directory names.
fs::path state_file_in(const fs::path& directory) {
  const SafetensorsFile model(directory / "model.safetensors");
  const auto named = model.metadata().find(state_key);
  require(named != model.metadata().end(),
          "{} has a model, but no optimizer state to resume from: start from its parameters with "
          "--init",
          directory.string());
  require(is_state_name(named->second),
          "{} names {:.60} as its state file, but state files are called training-*.safetensors",
          (directory / "model.safetensors").string(), named->second);
  return directory / named->second;
}

SavedRun run_in(const fs::path& directory, const fs::path& file) {
  const SafetensorsFile state(file);
  try {
    SavedRun run = saved_run_from(state.metadata());
    run.directory = directory;
    run.file = file;
    return run;
  } catch (const Error& problem) {
    fail("{} is not a valid training state: {}", file.string(), problem.what());
  }
}

}  // namespace

SavedRun read_run(const fs::path& directory, const std::function<void(const SavedRun&)>& check) {
  for (;;) {
    const fs::path file = state_file_in(directory);
    try {
      SavedRun run = run_in(directory, file);
      if (check) check(run);
      return run;
    } catch (const Error&) {
      if (state_file_in(directory) == file) throw;
    }
  }
}

void load_state(const SavedRun& run, const Model& model, Trainer& trainer) {
  SafetensorsFile file(run.file);
  // Only rank 0 sees sharded parameters. If it throws, the others fail in their next collective.
  const Inventory parameters =
      inventory_of([&](const SeeTensor& see) { trainer.strategy().visit_parameters(model, see); });
  require(!run.checksums || parameters.arrays.empty() ||
              parameters.checksum == run.checksums->parameters,
          "the parameters in {} are not those that {} was saved with: one of the files was changed "
          "or is damaged; use --init to start from the parameters alone",
          run.directory.string(), run.file.filename().string());
  require_text_of(run, trainer.corpus().fingerprint());
  require_vocabulary_of(run, trainer.corpus().vocabulary(), run.data);
  try {
    std::set<std::string> known;
    Inventory state;
    trainer.strategy().fill_state(trainer.optimizer(), [&](const NamedTensor& wanted) {
      read_state(file, wanted);
      state.add(wanted);
      known.insert(wanted.name);
    });
    for (const auto& [name, entry] : file.entries())
      require(known.contains(name), "it has '{}', which the optimizer does not have", name);
    require(!run.checksums || state.checksum == run.checksums->state,
            "its numbers are not those that were saved: the file is damaged");
    const std::uint64_t folded = (state.checksum ^ state.checksum >> 32) & 0xffffffff;
    trainer.require_same_everywhere(static_cast<double>(folded), "the same checkpoint");
  } catch (const Error& problem) {
    fail("cannot resume from {}: {}", run.file.string(), problem.what());
  }
  trainer.resume_at(run.step);
}

}  // namespace ringside::training
