// The figures of `ringside bench zero`, as a table for people and as JSON for programs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tensor/storage.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/report/json_file.hpp"

namespace ringside::cli {

using BytesByKind = std::array<double, autograd::all_memory_kinds.size()>;

// What one rank holds at one moment; of all ranks the one that holds most.
struct MemoryMoment {
  std::string name;  // "made", "before step", "after step"
  BytesByKind bytes{};
};

// What the formulas say: bytes that one rank holds and sends.
struct ZeroFormula {
  double parameters = 0, gradients = 0, optimizer_state = 0;
  double sent = 0;
};

// With n parameters of 4 bytes on p ranks, AdamW. zero3 gathers the blocks twice; `at_the_ends` of
// the parameters, those of the embedding and of norm and head, are gathered once.
ZeroFormula zero_formula(const std::string& strategy, double parameters, int ranks,
                         double at_the_ends);

// A tied head is gathered for the embedding, too.
double parameters_at_the_ends(const transformer::Config& config);

// In a step.
struct MemoryFigures {
  std::vector<MemoryMoment> moments;
  BytesByKind peak{};  // of each kind; they need not be at one moment
  double peak_of_all = 0;
};

struct ZeroFigures : FormRow {
  MemoryFigures memory;
  ZeroFormula formula;
};

struct ZeroBenchTitle {
  std::string model, backend;
  std::int64_t parameters = 0, batch = 0, sequence = 0;
  int ranks = 1, threads = 1, steps = 1;
};

std::string zero_table(const ZeroBenchTitle& title, const std::vector<ZeroFigures>& all);
Json to_json(const ZeroBenchTitle& title, const std::vector<ZeroFigures>& all);

}  // namespace ringside::cli
