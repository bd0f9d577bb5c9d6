// What the benches of a training step measure, and how their reports describe it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

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
  transformer::Batch sequences(std::int64_t first, std::int64_t count) const;
};

// One run as its titles and its JSON describe it.
struct BenchRun {
  std::string model, dtype, device = "cpu";
  std::string backend = {}, link = {};                   // link: "" or "1 Gbps, 50 us"
  std::int64_t parameters = 0, batch = 0, sequence = 0;  // batch: of each rank
  int ranks = 1, threads = 1, steps = 0;                 // threads: of each rank

  // These facts under their keys in JSON: "model", "parameters", "ranks", "backend", "link",
  // "batch", "sequence", "threads", "type", "device".
  Facts facts(std::initializer_list<std::string_view> keys) const;
  std::string parameters_text() const;  // "857k parameters"
  std::string device_text() const;      // ", on cuda"; nothing for the CPU
  std::string threads_text() const;     // "1 thread each", and device_text()
};

// A run with as many threads as this process computes on; without `group` on one rank.
BenchRun describe_run(const StepOptions& options, const std::string& device,
                      const collectives::ProcessGroup* group = nullptr);

}  // namespace ringside::cli
