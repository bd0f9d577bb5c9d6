// One rank's part in `ringside train`: from a plan, which is the same on every rank, to a trained
// model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "cli/report/recording.hpp"
#include "transformer/checkpoint/training_state.hpp"
#include "transformer/config.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/data/vocabulary.hpp"
#include "transformer/inference/generation.hpp"
#include "transformer/parallel_strategy.hpp"
#include "transformer/trainer.hpp"

namespace ringside::cli {

struct TrainingPlan {
  std::string
      model_name;  // for the header: a named size, "custom", or the folder that it was started from
  transformer::Config config;
  autograd::DType dtype = autograd::DType::fp32;
  autograd::Device device = autograd::Device::cpu;
  transformer::TrainerOptions options;
  std::vector<std::filesystem::path> data;  // empty: the default corpus
  std::shared_ptr<const transformer::Vocabulary> vocabulary =
      std::make_shared<transformer::Vocabulary>();  // of the text; never null
  std::string strategy, backend;                    // for the header
  double bucket_mb = 25;                            // of the form `bucketed`
  int threads = 1;                                  // of each rank
  std::filesystem::path init;  // a checkpoint to start from; empty: from first values
  std::optional<transformer::SavedRun> resumed;  // the run in `init` that is gone on with
  std::int64_t save_every = 0;                   // steps; 0: at the end
  std::int64_t stop_at = 0;                      // the step after which it ends
  std::filesystem::path metrics, dump, save;     // empty: none
  RecordingPlan recording;
  std::int64_t sample_tokens = 0;
  transformer::SampleOptions sample;
  std::optional<double> memory_limit_gb;  // 10^9 bytes for the ranks on this machine; 0: do not
                                          // look; none: what the system has
};

// What the plan reads: its own paths or the default corpus.
transformer::Text read_data(const TrainingPlan& plan);

// Throws Error if no run could come of this plan on so many ranks. Starts nothing; called before
// ranks are. Only a text that might be too short is encoded for it.
void check_plan(const TrainingPlan& plan, int ranks);

// Throws Error, with what is needed and what there is, if so many ranks, of which some are on this
// machine, would not fit into its memory.
void check_memory(const TrainingPlan& plan, int ranks, int ranks_on_this_machine);

// Makes the folders that the plan writes into, and throws Error if a file there could not be
// written. run_training does it too, on rank 0; a launcher does it before there are ranks.
void prepare_outputs(const TrainingPlan& plan);

// Trains. Rank 0 prints on standard output, writes metrics, dumps and checkpoint; the others are
// silent. Every rank must call it, on the thread that it will compute on.
void run_training(const TrainingPlan& plan, std::unique_ptr<transformer::ParallelStrategy> strategy,
                  Recording& recording);

// The recording that the plan asks for. Throws Error if it asks for steps that the run does not
// take.
Recording recording_of(const TrainingPlan& plan);

// What stands above a report of the run.
std::vector<std::pair<std::string, std::string>> facts_of(const TrainingPlan& plan, int ranks);

}  // namespace ringside::cli
