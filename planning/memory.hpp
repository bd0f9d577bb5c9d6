// Memory: what a rank needs, by the formulas of formulas/, with their sources. `account` and the
// simulation's page ask it. A training run and `bench` check their memory by
// training/memory_need.hpp.
//
// It holds for the trainer of this program and for others. Where they differ (Plan::types,
// Plan::recompute, Model::own) the plan or the model says so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor/storage.hpp"
#include "planning/model.hpp"
#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// Bytes of one kind of memory on one rank.
struct MemoryRow {
  std::string kind;                                                  // "masters"
  autograd::MemoryKind counted = autograd::MemoryKind::activations;  // as the ledger counts it
  double bytes = 0;
};

struct RankMemory {
  std::string name;        // of its pipeline stages: "first", "middle", "last"; "only" without them
  std::int64_t index = 0;  // its coordinate along pp
  std::vector<MemoryRow> rows;
  std::vector<Term> terms;  // the formulas that led to the rows
  double at_start = 0;      // the whole parameters, before Ringside's ZeRO 3 shards them
  // Each row is the most of its kind. Of their sum, what is not there at any one moment.
  double never_together = 0;

  double of(autograd::MemoryKind kind) const;
  double total() const;  // at the peak: the rows together, or `at_start` if that is more
};

// The rows with this name: MemoryRow::kind.
double bytes_of(const RankMemory& memory, std::string_view kind);

// Of a rank of the pipeline with this coordinate along pp. Tensor-parallel ranks need the same. The
// plan must be valid for the model. With activations if the model's blocks are known.
RankMemory memory_of_rank(const Model& model, const Plan& plan, std::int64_t index);

// Of the pipeline rank that needs most.
RankMemory memory_of_largest_rank(const Model& model, const Plan& plan);

// Of the first stage, one in the middle and the last.
std::vector<RankMemory> memory_of_stages(const Model& model, const Plan& plan);

}  // namespace ringside::planning
