// What a training run does: the same on every rank. And the checks of a plan before the run starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/options/device_option.hpp"
#include "cli/pictures/report/recording.hpp"
#include "training/plan.hpp"
#include "training/same_options.hpp"
#include "training/state/training_state.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/inference/generation.hpp"

namespace ringside::cli {

constexpr const char* sample_beginning = "\n";  // the beginning of the text of --sample

// The plan of `ringside train`: a run, and what the command reads, writes and prints beside it.
struct TrainingPlan : training::Plan {
  std::string model_name;  // for the header: a named size, "custom", or the checkpoint's folder
  std::vector<std::filesystem::path> data;  // empty: the default corpus
  std::shared_ptr<const transformer::Vocabulary> vocabulary =
      std::make_shared<transformer::Vocabulary>();  // of the text; never null
  std::string backend;
  int threads = 1;                            // of each rank
  std::int64_t save_every = 0;                // in steps; 0: only at the end
  std::filesystem::path metrics, dump, save;  // empty: none
  bool overwrite = false;                     // `save` may hold another run
  // The command that continues the run from `save`, also past `stop_at` if it has stopped there.
  std::function<std::string(bool stopped)> resume_command;
  RecordingOptions recording;
  std::int64_t sample_tokens = 0;
  std::int64_t sample_every = 0;  // in steps; 0: only at the end
  transformer::SampleOptions sample;
  // In 10^9 bytes, for all ranks on this machine. 0: do not check; none: the available memory.
  std::optional<double> memory_limit_gb;
};

// Those of the plan, and the options of the command that must be the same on every rank. Options of
// a rank's own (--threads, the path of --data) are not among them. A test fails where an option of
// `train` is neither here nor known as a rank's own (tests/cli/faults/options_test.cpp).
training::Options shared_options(const TrainingPlan& plan, const DeviceOption& device);

// The plan as text, for the header of a run and for its report.
std::string model_text(const TrainingPlan& plan);             // "tiny: 857k parameters in fp32"
std::string ranks_text(const TrainingPlan& plan, int ranks);  // "2 over shm, flat, 1 thread each"
std::string batch_text(const TrainingPlan& plan, int ranks);
// What the ranks with each pp coordinate of a mesh need, estimated before the run: "pp=0: 25.1 MB
// (parameters 6.3 MB, ...)". Without a mesh none.
std::vector<std::string> memory_texts(const TrainingPlan& plan);

std::string data_text(const TrainingPlan& plan);

// The head of the run's report.
std::vector<std::pair<std::string, std::string>> facts_of(const TrainingPlan& plan, int ranks);

// The text of the plan's files, or the default corpus.
transformer::Text read_data(const TrainingPlan& plan);

// The recording of the plan. Throws Error if it has no step of the run.
Recording recording_of(const TrainingPlan& plan);

// Throws Error if the plan cannot run on so many ranks. Call it before there are ranks. Encodes the
// text only if it may be too short.
void check_plan(const TrainingPlan& plan, int ranks);

// Throws Error, with the needed and the available memory, if the ranks on this machine do not fit
// into its memory.
void check_memory(const TrainingPlan& plan, int ranks, int ranks_on_this_machine);

// Creates the folders of the output files. Throws Error if a file cannot be written there, or if
// the folder to save in holds another run, which must not be lost. A launcher calls it before there
// are ranks; run_training() calls it again on rank 0.
void prepare_outputs(const TrainingPlan& plan);

}  // namespace ringside::cli
