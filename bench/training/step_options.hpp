// What the benches of a training step measure, how they describe it, and how they write it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/process_group.hpp"
#include "transformer/config.hpp"
#include "transformer/data/batches.hpp"

namespace ringside::cli {

struct StepOptions {
  std::string model = "lab", dtype = "fp32";
  std::int64_t batch = 2, sequence = 256;  // of each rank
  int steps = 9;                           // measured ones
  std::string json;                        // empty: none

  // The model's configuration, for at least `sequence` tokens. Throws Error if there is no such
  // model.
  transformer::Config config() const;

  // `count` sequences of random tokens. Sequence i is the same in every run.
  transformer::Batch sequences(std::int64_t first, std::int64_t count,
                               std::span<const transformer::TokenRange> tokens = {}) const;
};

// One run as its title and its JSON describe it.
struct BenchRun {
  std::string model, dtype, device = "cpu";
  std::string backend = {}, link = {};                   // link: "" or "1 Gbps, 50 us"
  std::int64_t parameters = 0, batch = 0, sequence = 0;  // batch: of each rank
  int ranks = 0, threads = 1, steps = 0;                 // ranks 0: no group; threads: of each rank

  // "tiny: 857k parameters on 3 ranks over shm; batch 1 x 32 each, fp32, AdamW, 1 thread each"
  std::string title() const;
  Facts facts() const;  // for each row in JSON
};

// A run with as many threads as this process computes on; without `group` on one rank.
BenchRun describe_run(const StepOptions& options, const std::string& device,
                      const collectives::ProcessGroup* group = nullptr);

// What a bench has measured in one run: over one backend, or with one number of threads.
struct BenchResult {
  std::string text;  // for people
  Json figures;      // rows, or an object
};

// Prints the texts, separated by blank lines, and writes the figures to `json_path`, if there is
// one. The rows of several results become one array; several objects become an array.
void write_results(const std::vector<BenchResult>& results, const std::string& json_path);

}  // namespace ringside::cli
