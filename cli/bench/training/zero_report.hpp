// The figures of `ringside bench zero` as a table and as JSON.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "autograd/tensor/storage.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/pictures/json_file.hpp"

namespace ringside::cli {

using BytesByKind = std::array<double, autograd::all_memory_kinds.size()>;

// The memory of a rank at one moment: the maximum over the ranks.
struct MemoryMoment {
  std::string name;  // "made", "before step", "after step"
  BytesByKind bytes{};
};

// The bytes that one rank holds and sends, by the formulas.
struct ZeroFormula {
  double parameters = 0, gradients = 0, optimizer_state = 0;
  double sent = 0;

  double held() const { return parameters + gradients + optimizer_state; }
};

// For parameters of 4 bytes and AdamW. zero3 gathers the blocks twice per step, but
// `gathered_once` of the parameters (embedding, final norm and head) only once.
ZeroFormula zero_formula(const std::string& strategy, double parameters, int ranks,
                         double gathered_once);

// The parameters of the embedding, the final norm and the head. None if the head is tied: the
// embedding's unit is then gathered twice, too.
double parameters_gathered_once(const transformer::Config& config);

// Memory during one step.
struct MemoryFigures {
  std::vector<MemoryMoment> moments;
  BytesByKind peak{};  // of each kind, possibly at different moments
  double peak_of_all = 0;
};

struct ZeroFigures : StrategyRow {
  MemoryFigures memory;
  ZeroFormula formula;
};

std::string zero_table(const BenchRun& run, const std::vector<ZeroFigures>& all);
Json to_json(const BenchRun& run, const std::vector<ZeroFigures>& all);

}  // namespace ringside::cli
