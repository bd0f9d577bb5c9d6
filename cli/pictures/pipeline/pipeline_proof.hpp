// The result of `ringside prove pipeline` for one schedule, and the table that it prints.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/pictures/schedule/proof.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"

namespace ringside::cli {

// First and last.
struct Range {
  int first, last;
};

struct PipelineCases {
  Range ranks{1, 16};
  Range micro_batches{1, 64};
  Range stages_per_rank{1, 4};
};

struct PipelineProof {
  std::string schedule;
  Range stages_per_rank{1, 1};
  Findings findings{};    // each sentence with its case
  int refused = 0;        // cases that the schedule does not serve
  std::string refusal{};  // why it does not, for the last of them
  // The example, whose figures the table has beside the formulas: the last case.
  int ranks = 0, micro_batches = 0, example_stages_per_rank = 0;
  double bubble = 0;
  int most_in_flight = 0;  // on the rank that holds most
};

// Proves every case of the ranges: verify(), and bubble and activations equal to the formulas
// (formulas.hpp) where these hold.
PipelineProof prove(const pipeline_parallel::Generator& generator, const PipelineCases& cases);

// A single schedule, from a file.
PipelineProof prove(const std::string& name, const pipeline_parallel::Schedule& schedule);

// A line for each proof, and what its columns mean.
void print_table(std::ostream& out, const std::vector<PipelineProof>& proofs);

Table table_of(const std::vector<PipelineProof>& proofs);

}  // namespace ringside::cli
