// From the options that a user has given to a run that can start.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/elastic/elastic_sizes.hpp"
#include "training/plan/plan.hpp"
#include "transformer/data/corpus.hpp"

namespace ringside::training {

// Checks that the files of a checkpoint, and `more` of its folder, are those that were saved.
using CheckFiles = std::function<void(const std::filesystem::path& checkpoint,
                                      const std::vector<std::string>& more)>;

// The plan for so many ranks: chooses what `plan.given` does not name, or takes it from the run
// that is resumed. `elastic`: between which sizes an elastic run stays. Throws UsageError if the
// options contradict each other, and Error if a checkpoint or a vocabulary does not fit.
Plan complete(Plan plan, int ranks, int ranks_on_this_machine,
              const std::optional<ElasticSizes>& elastic, const CheckFiles& check_files);

// The plan's files, or the default corpus.
transformer::Corpus read_data(const Plan& plan);

// The first and the last step of plan.trace and plan.report. Throws Error if the run takes none of
// those that plan.trace_steps names.
StepRange steps_to_trace(const Plan& plan);

// Throws Error if the plan cannot run on so many ranks. Call it before there are ranks.
void check_plan(const Plan& plan, int ranks);

// Throws Error, with the needed and the available memory, if the ranks on this machine do not fit
// into its memory.
void check_memory(const Plan& plan, int ranks, int ranks_on_this_machine);

// Creates the folders of the output files. Throws Error if a file cannot be written there, or if
// the folder to save in holds another run, which must not be lost. A launcher calls it before there
// are ranks; Run::run() calls it again on the rank that writes.
void prepare_outputs(const Plan& plan);

}  // namespace ringside::training
