#include "training/state/training_state.hpp"
#include "base/read_file.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/transformer/encoded_text.hpp"
#include "tests/transformer/small_model.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "training/memory_need.hpp"
#include "training/state/background_save.hpp"
#include "training/strategies/single_process.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"

using namespace ringside;
using namespace ringside::training;
using namespace ringside::transformer;
using autograd::DType;
using tests::small_text;
namespace fs = std::filesystem;

namespace {

Config small(std::int32_t vocabulary = 256) {
  Config config = tests::small_config();
  config.vocabulary = vocabulary;
  return config;
}

TrainerOptions brief() {
  TrainerOptions options;
  options.steps = 20;
  options.batch = 4;
  options.sequence = 16;
  options.warmup = 3;
  options.seed = 5;
  return options;
}

// The text as that many tokens; 256: as bytes.
Corpus corpus_of(const Bytes& text, std::int32_t vocabulary) {
  if (vocabulary == 256) return Corpus(text);
  const TemporaryDirectory directory;
  tests::PairTokenizer(vocabulary).write(directory.path() / "text.u16", text);
  return read_corpus({directory.path() / "text.u16"});
}

// A model in training, as the program makes one.
struct Run {
  explicit Run(DType dtype = DType::fp32, const TrainerOptions& options = brief(),
               const Bytes& text = small_text(), std::int32_t vocabulary = 256)
      : corpus(corpus_of(text, vocabulary)),
        model(small(vocabulary), dtype),
        trainer(model, corpus, strategy, options,
                {[this](const StepReport& r) { loss = r.loss; }, {}}) {}

  // A run that continues from the checkpoint in `directory`.
  static std::unique_ptr<Run> resumed(const fs::path& directory, TrainerOptions options = brief(),
                                      const Bytes& text = small_text(),
                                      std::int32_t vocabulary = 256) {
    const SavedRun saved = read_run(directory);
    auto run = std::make_unique<Run>(saved.dtype, options, text, vocabulary);
    load_parameters(directory, run->model);
    load_state(saved, run->model, run->trainer);
    return run;
  }

  std::string bits() const {
    std::string all;
    auto tensors = model.named_parameters();
    for (const auto& state : trainer.optimizer().state()) tensors.push_back(state);
    for (const auto& [name, tensor] : tensors) {
      const auto bytes = view_of(name, tensor).bytes;
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
  }

  Corpus corpus;
  Model model;
  SingleProcess strategy;
  double loss = 0;
  Trainer trainer;
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void overwrite(const fs::path& path, std::streamoff at, char byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at < 0 ? static_cast<std::streamoff>(fs::file_size(path)) + at : at);
  file.put(byte);
}

// Limits the size of files, like a disk that is full after so many bytes.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : before_signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_signal_);
  }

 private:
  rlimit before_{};
  void (*before_signal_)(int);
};

}  // namespace

TEST_CASE("ten steps and ten more after loading equal twenty steps bit for bit") {
  for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16}) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
      TrainerOptions options = brief();
      options.optimizer = kind;
      Run whole(dtype, options), half(dtype, options);
      whole.trainer.run();
      half.trainer.run(10);
      CHECK(half.trainer.steps_taken() == 10);
      TemporaryDirectory directory;
      save_run(directory.path(), half.model, half.trainer);
      half.trainer.run(13);  // must not change what was saved
      const auto second = Run::resumed(directory.path(), options);
      CHECK(second->trainer.steps_taken() == 10);
      second->trainer.run();
      CHECK(second->loss == whole.loss);
      CHECK((second->bits() == whole.bits()));
    }
  }
}

TEST_CASE("a run on tokens is saved with its tokenizer and resumes bit for bit") {
  const Vocabulary vocabulary = tests::PairTokenizer(280).vocabulary();
  Run whole(DType::fp32, brief(), small_text(), 280), half(DType::fp32, brief(), small_text(), 280);
  whole.trainer.run();
  half.trainer.run(10);
  TemporaryDirectory directory;
  save_run(directory.path(), half.model, half.trainer, vocabulary);
  CHECK(names_in(directory.path()) ==
        std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json",
                                 "tokenizer_config.json", "training-10.safetensors",
                                 "vocabulary.json"});
  CHECK(read_file(directory.path() / "tokenizer.json") == tests::PairTokenizer(280).json());
  CHECK(read_run(directory.path()).tokenizer == vocabulary.fingerprint());

  const auto second = Run::resumed(directory.path(), brief(), small_text(), 280);
  second->trainer.run();
  CHECK(second->loss == whole.loss);
  CHECK((second->bits() == whole.bits()));
  CHECK_NOTHROW(
      save_run(directory.path(), second->model, second->trainer, vocabulary));  // over its own

  const SavedRun saved = read_run(directory.path());
  const auto resume_with = [&](const Vocabulary& other) {
    return error_of([&] { require_vocabulary_of(saved, other, {"/text/a.txt", "/text/b"}); });
  };
  const std::string folder = directory.path().string();
  CHECK(resume_with(vocabulary) == "no error");
  CHECK(resume_with({}) == "the run in " + folder +
                               " was trained with a tokenizer, and its text must be encoded: "
                               "ringside tokenize --tokenizer " +
                               folder +
                               " --data /text/a.txt /text/b --out NAME.u16, then add --data "
                               "NAME.u16");
  CHECK(resume_with(tests::PairTokenizer(270).vocabulary()) ==
        "the run in " + folder +
            " was trained with another tokenizer than that of mine: encode the text with its own "
            "(ringside tokenize --tokenizer " +
            folder + " --out NAME.u16)");
}

TEST_CASE("a run is not saved next to the tokenizer of another") {
  TemporaryDirectory directory;
  Run bytes;
  tests::PairTokenizer(280).vocabulary().save(directory.path());
  const std::string file = (directory.path() / "tokenizer.json").string();
  CHECK(error_of([&] { save_run(directory.path(), bytes.model, bytes.trainer); }) ==
        file +
            " exists, but the tokens of this run are bytes: its checkpoint would be read with that "
            "tokenizer; save to another folder, or remove the file");
  const Vocabulary other = tests::PairTokenizer(270).vocabulary();
  Run tokens(DType::fp32, brief(), small_text(), 270);
  CHECK(error_of([&] { save_run(directory.path(), tokens.model, tokens.trainer, other); }) ==
        file +
            " is not the tokenizer of this run (that of mine): its checkpoint would be read with "
            "the wrong one; save to another folder, or remove the file");
  CHECK(error_of([&] { save_run(directory.path(), tokens.model, tokens.trainer); }) ==
        "the vocabulary to be saved is not the one of the run's corpus");
  CHECK_FALSE(fs::exists(directory.path() / "model.safetensors"));
  TemporaryDirectory empty;
  save_run(empty.path(), bytes.model, bytes.trainer);
  CHECK(error_of([&] { require_vocabulary_of(read_run(empty.path()), other, {}); }) ==
        "the run in " + empty.path().string() +
            " was trained on bytes and cannot continue with the tokens in mine: give its text with "
            "--data");
}

TEST_CASE("a checkpoint describes its run") {
  TemporaryDirectory directory;
  TrainerOptions options = brief();
  options.learning_rate = 0.1 + 0.2;  // no short decimal
  options.accumulate = 2;
  Run run(DType::fp64, options);
  run.trainer.run(7);
  save_run(directory.path(), run.model, run.trainer);
  const SavedRun saved = read_run(directory.path());
  CHECK(saved.step == 7);
  CHECK(saved.dtype == DType::fp64);
  CHECK(saved.options.learning_rate == options.learning_rate);
  CHECK(saved.options.seed == 5);
  CHECK(saved.options.accumulate == 2);
  CHECK(changes_since(saved, options).empty());
  options.batch = 8;
  options.seed = 6;
  CHECK(changes_since(saved, options) ==
        std::vector<std::string>{"batch was 4 and is 8", "seed was 5 and is 6"});

  // The schedule of the learning rate follows the number of steps.
  options.batch = 4;
  options.seed = 5;
  options.steps *= 2;
  const double before = saved.options.rates().at(6), after = options.rates().at(7);
  CHECK(changes_since(saved, options) ==
        std::vector<std::string>{
            fmt::format("steps was {} and is {}", saved.options.steps, options.steps),
            fmt::format("the learning rate was {:.3g} in step 7 and is {:.3g} in step 8", before,
                        after)});
}

TEST_CASE("the keys of a state file's metadata are those of every version") {
  TemporaryDirectory directory;
  Run run;
  save_run(directory.path(), run.model, run.trainer, {}, {"a text"});
  std::vector<std::string> keys;
  const SafetensorsFile file(read_run(directory.path()).file);
  for (const auto& [key, value] : file.metadata()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"accumulate", "batch",         "beta1",
                                         "beta2",      "clip",          "data",
                                         "dtype",      "learning_rate", "min_learning_rate",
                                         "optimizer",  "parameters",    "seed",
                                         "sequence",   "sha256",        "state",
                                         "step",       "steps",         "text",
                                         "tokenizer",  "warmup",        "weight_decay"});
}

TEST_CASE("saving keeps one checkpoint and leaves other files alone") {
  TemporaryDirectory directory;
  directory.write("notes.txt", "mine");
  directory.write("model.safetensors.999999999.part", "of a process that was killed");
  directory.write("tokenizer.json.999999999.part", "of another");
  Run run;
  for (const std::int64_t step : {3, 5}) {
    run.trainer.run(step);
    save_run(directory.path(), run.model, run.trainer);
  }
  CHECK(names_in(directory.path()) == std::vector<std::string>{"config.json", "model.safetensors",
                                                               "notes.txt",
                                                               "training-5.safetensors"});
  save_run(directory.path(), run.model, run.trainer);  // again: the file in use is not overwritten
  CHECK(names_in(directory.path()).back() == "training-5-2.safetensors");
  CHECK(Run::resumed(directory.path())->trainer.steps_taken() == 5);
  CHECK_NOTHROW(load_config(directory.path()));
}

TEST_CASE("if the disk is full the previous checkpoint stays") {
  TemporaryDirectory directory;
  Run run;
  run.trainer.run(3);
  save_run(directory.path(), run.model, run.trainer);
  const std::string before = run.bits();
  const auto names = names_in(directory.path());
  run.trainer.run(4);
  const auto model_bytes = fs::file_size(directory.path() / "model.safetensors"),
             state_bytes = fs::file_size(directory.path() / names.back());
  REQUIRE(model_bytes < state_bytes);
  for (const auto room :
       {model_bytes / 2, model_bytes + 100}) {  // in the model's size, and in the state's
    const SmallDisk disk(room);
    const std::string told = error_of([&] { save_run(directory.path(), run.model, run.trainer); });
    CHECK(told.starts_with("cannot write "));
    const Vocabulary bytes;
    BackgroundSave saving;
    saving.start(copy_run(directory.path(), run.model, run.trainer, bytes));
    CHECK(error_of([&] { saving.finish(); }) == told);
  }
  {
    // The state fits, but the model does not: the state of SGD has no arrays.
    TrainerOptions options = brief();
    options.optimizer = OptimizerKind::sgd;
    Run other(DType::fp32, options);
    other.trainer.run(4);
    const SmallDisk disk(model_bytes / 2);
    CHECK(error_of([&] { save_run(directory.path(), other.model, other.trainer); }) ==
          "cannot write " + (directory.path() / "model.safetensors").string() + ": File too large");
  }
  CHECK(names_in(directory.path()) == names);
  const auto kept = Run::resumed(directory.path());
  CHECK(kept->trainer.steps_taken() == 3);
  CHECK((kept->bits() == before));
}

TEST_CASE("what is written in the background equals what is saved at once to the byte") {
  const Vocabulary vocabulary = tests::PairTokenizer(280).vocabulary();
  for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16}) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
      TrainerOptions options = brief();
      options.optimizer = kind;
      Run run(dtype, options, small_text(), 280);
      run.trainer.run(3);
      TemporaryDirectory at_once, meanwhile;
      save_run(at_once.path(), run.model, run.trainer, vocabulary, {"a text"});
      BackgroundSave saving;
      saving.start(copy_run(meanwhile.path(), run.model, run.trainer, vocabulary, {"a text"}));
      // Training changes everything long before the files are written.
      auto tensors = run.model.named_parameters();
      for (const auto& state : run.trainer.optimizer().state()) tensors.push_back(state);
      for (const auto& each : tensors) each.tensor.fill_(7);
      run.trainer.resume_at(15);
      saving.finish();
      REQUIRE(names_in(meanwhile.path()) == names_in(at_once.path()));
      CHECK(names_in(meanwhile.path()).size() == 6);
      for (const std::string& name : names_in(at_once.path())) {
        CAPTURE(name);
        CHECK((read_file(meanwhile.path() / name) == read_file(at_once.path() / name)));
      }
    }
  }
}

TEST_CASE("the copy of a checkpoint takes the memory that is checked for and then gives it back") {
  const auto used = [] { return static_cast<double>(autograd::memory_use().current); };
  for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16}) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
      TrainerOptions options = brief();
      options.optimizer = kind;
      Run run(dtype, options);
      const double before = used();
      const TemporaryDirectory directory;
      const Vocabulary bytes;
      BackgroundSave saving;
      saving.start(copy_run(directory.path(), run.model, run.trainer, bytes));
      // AdamW counts the steps of each parameter, too.
      CHECK(used() - before ==
            doctest::Approx(checkpoint_bytes(run.model.config(), dtype, kind)).epsilon(0.01));
      saving.finish();
      CHECK(used() == before);
    }
  }
}

TEST_CASE("a disk that hangs holds up no step and its error is told at a later one") {
  TemporaryDirectory directory;
  const Vocabulary bytes;
  Run run;
  run.trainer.run(2);
  save_run(directory.path(), run.model, run.trainer);
  run.trainer.run(3);
  // The file of the state is a pipe that nobody reads: whoever opens it to write waits.
  const fs::path state = directory.path() / "training-3.safetensors";
  const std::string pipe = state.string() + "." + std::to_string(::getpid()) + ".part";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  BackgroundSave saving;
  saving.start(copy_run(directory.path(), run.model, run.trainer, bytes));
  for (const std::int64_t step : {4, 5, 6}) {
    run.trainer.run(step);
    CHECK_NOTHROW(saving.check());
  }
  CHECK(Run::resumed(directory.path())->trainer.steps_taken() == 2);
  {
    const int reader = ::open(pipe.c_str(), O_RDONLY);
    std::array<char, 4096> ignored;
    while (::read(reader, ignored.data(), ignored.size()) > 0) {
    }
    ::close(reader);
  }
  std::string told = "no error";
  while (told == "no error") told = error_of([&] { saving.check(); });
  CHECK(told == "cannot write " + state.string() + ": Illegal seek");
  CHECK_NOTHROW(saving.check());  // once
  CHECK_NOTHROW(saving.finish());
  CHECK(names_in(directory.path()).size() == 3);
  saving.start(copy_run(directory.path(), run.model, run.trainer, bytes));
  saving.finish();
  CHECK(Run::resumed(directory.path())->trainer.steps_taken() == 6);
}

TEST_CASE("a process that is killed while saving leaves a complete checkpoint") {
  bool in_background = false;
  SUBCASE("at once") {}
  SUBCASE("in the background") {
    in_background = true;
  }
  TemporaryDirectory directory;
  const Vocabulary bytes;
  Run run;
  run.trainer.run(2);
  save_run(directory.path(), run.model, run.trainer);
  std::int64_t furthest = 2;
  // A slow disk gets more attempts, and so more time, until a save is complete.
  for (int attempt = 0; attempt < 25 || (furthest == 2 && attempt < 250); ++attempt) {
    const pid_t child = ::fork();
    if (child == 0) {
      BackgroundSave saving;
      for (;;) {
        run.trainer.resume_at(2 + (run.trainer.steps_taken() + 1) % 15);
        if (!in_background) save_run(directory.path(), run.model, run.trainer);
        if (in_background) saving.start(copy_run(directory.path(), run.model, run.trainer, bytes));
        saving.finish();
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + 1731 * attempt));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    const auto found = Run::resumed(directory.path());  // throws if the checkpoint is incomplete
    furthest = std::max(furthest, found->trainer.steps_taken());
  }
  CHECK(furthest > 2);
  save_run(directory.path(), run.model, run.trainer);
  CHECK(names_in(directory.path()).size() == 3);  // partial files of killed processes are deleted
}

TEST_CASE("a checkpoint that is replaced while it is read is read again") {
  TemporaryDirectory directory;
  Run run;
  run.trainer.run(2);
  save_run(directory.path(), run.model, run.trainer);
  std::vector<std::int64_t> steps;
  const SavedRun found = read_run(directory.path(), [&](const SavedRun& saved) {
    steps.push_back(saved.step);
    if (steps.size() == 1) {
      run.trainer.run(4);
      save_run(directory.path(), run.model, run.trainer);
    }
    const SafetensorsFile state(saved.file);  // throws if it was deleted
  });
  CHECK(steps == std::vector<std::int64_t>{2, 4});
  CHECK(found.step == 4);
  CHECK(error_of([&] {
          read_run(directory.path(), [](const SavedRun&) { fail("it is damaged"); });
        }) == "it is damaged");
}

TEST_CASE("a checkpoint that was changed or does not fit the run is refused") {
  TemporaryDirectory directory;
  Run run;
  run.trainer.run(3);
  save_run(directory.path(), run.model, run.trainer);
  const fs::path model = directory.path() / "model.safetensors",
                 state = directory.path() / "training-3.safetensors";
  const std::string folder = directory.path().string();
  const auto refusal = [&] { return error_of([&] { Run::resumed(directory.path()); }); };
  CHECK(refusal() == "no error");

  CHECK(error_of([&] { Run::resumed(directory.path(), brief(), small_text(19'999)); }) ==
        "the run in " + folder +
            " was trained on another text: give the same --data, or start from its parameters with "
            "--init");
  TrainerOptions options = brief();
  options.optimizer = OptimizerKind::sgd;
  CHECK(error_of([&] {
          Run::resumed(directory.path(), options);
        }).find("which the optimizer does not have") != std::string::npos);
  options = brief();
  options.steps = 3;
  CHECK(error_of([&] { Run::resumed(directory.path(), options); }) ==
        "3 of 3 steps are taken already: ask for more with --steps");

  overwrite(state, -1, '\x7f');
  CHECK(refusal() == "cannot resume from " + state.string() +
                         ": its numbers are not those that were saved: the file is damaged");
  fs::resize_file(state, fs::file_size(state) - 1);
  CHECK(refusal().find("it was cut short") != std::string::npos);
  fs::remove(state);
  CHECK(refusal() ==
        "cannot read " + state.string() + " as safetensors: No such file or directory");

  save_run(directory.path(), run.model, run.trainer);
  overwrite(model, -1, '\x41');  // a number of about 10
  CHECK(refusal() == "the parameters in " + folder +
                         " are not those that training-3.safetensors was saved with: one of the "
                         "files was changed or is damaged; use --init to start from the "
                         "parameters alone");
  save_checkpoint(directory.path(), run.model);
  CHECK(refusal() == folder +
                         " has a model, but no optimizer state to resume from: start from its "
                         "parameters with --init");
  save_checkpoint(directory.path(), run.model,
                  {{"training_state", "../../etc/training-1.safetensors"}});
  CHECK(refusal() == model.string() +
                         " names ../../etc/training-1.safetensors as its state file, but state "
                         "files are called training-*.safetensors");
}

TEST_CASE("a state file with invalid metadata is refused") {
  TemporaryDirectory directory;
  Run run;
  run.trainer.run(3);
  save_run(directory.path(), run.model, run.trainer);
  const fs::path state = directory.path() / "training-3.safetensors";
  Metadata metadata;
  {
    SafetensorsFile file(state);
    metadata = file.metadata();
  }
  const auto refusal = [&](const std::string& key, const std::string& value) {
    Metadata changed = metadata;
    changed[key] = value;
    if (value.empty()) changed.erase(key);
    write_safetensors(state, {}, changed);
    const std::string message = error_of([&] { read_run(directory.path()); }),
                      start = state.string() + " is not a valid training state: ";
    return message.starts_with(start) ? message.substr(start.size()) : message;
  };
  CHECK(refusal("step", "3") == "no error");
  CHECK(refusal("step", "") == "its metadata has no \"step\"");
  CHECK(refusal("step", "three") == "its metadata has a \"step\" that is not a number");
  CHECK(refusal("step", "3 ") == "its metadata has a \"step\" that is not a number");
  CHECK(refusal("step", "99999999999999999999") ==
        "its metadata has a \"step\" that is not a number");
  CHECK(refusal("step", "-1") == "its step is -1, but it must be 0 or more");
  CHECK(refusal("dtype", "fp8") == "its dtype is fp8, but Ringside trains in fp32, fp64 and bf16");
  CHECK(refusal("optimizer", "lion") == "its optimizer is lion, but Ringside has sgd and adamw");
}
