// The harness of `ringside bench ddp`, `zero`, `mesh` and `train`: measures time, traffic and
// memory of the training step of several contenders, which take turns step by step, so that changes
// of the machine affect all alike. A command is a view of it: it names the contenders, and the
// columns that it shows of the one table (step_table.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "autograd/tensor/storage.hpp"
#include "bench/training/step_options.hpp"
#include "collectives/process_group.hpp"
#include "training/memory_need.hpp"
#include "transformer/data/batches.hpp"
#include "transformer/model.hpp"

namespace ringside::cli {

// One way to train.
struct StepContender {
  std::string name;                      // "bucketed", "dp=2,tp=2"
  training::Plan plan;                   // strategy single: a step without communication
  std::optional<double> bucket_mb = {};  // if its bucket size is an option
  std::size_t group = 0;                 // with which it communicates, of those of the bench

  std::string text() const;  // "bucketed 25 MB"
  // What each pp coordinate needs; one without a pipeline.
  std::vector<training::MemoryNeed> needs(int ranks) const;
};

// These strategies over each backend; those with buckets once for each size.
std::vector<StepContender> strategies_of(const StepOptions& options,
                                         const std::vector<std::string>& strategies,
                                         const std::vector<double>& buckets_mb, int ranks);

// Sequences of random tokens, the same in every run; of each these tokens, or all.
transformer::Batch random_batch(const training::Plan& plan, transformer::Share share,
                                std::span<const transformer::TokenRange> tokens = {});

// Bytes in tensors, by autograd::MemoryKind; the last are those of all kinds together.
using BytesByKind = std::array<double, autograd::all_memory_kinds.size() + 1>;
double of(const BytesByKind& bytes, autograd::MemoryKind kind);
double held(const BytesByKind& bytes);  // parameters, gradients and optimizer state

// The memory of one contender. Each kind and their sum have their peaks at different moments.
struct StepMemory {
  BytesByKind made{}, before_update{}, after_step{}, peak{};
};

// What was measured of one contender. Times are medians; each step counts with its slowest rank.
struct StepRow : StepContender {
  double step_seconds = 0;
  double network_seconds = 0;  // calls of the contender's group were running
  double exposed_seconds = 0;  // the rank waited for other ranks
  // Of the group, per rank and step. Calls of a round are those of its only step that makes some.
  std::int64_t calls = 0, bytes_sent = 0;
  std::map<parallel::Axis, double> sent_along = {};  // the same bytes by the axes of a mesh
  double loss = 0;
  // [pp coordinate]: in the last step, on the rank with the most; and as it was estimated.
  std::vector<StepMemory> memory = {};
  std::vector<training::MemoryNeed> needed = {};
  // What bench ddp predicts of exposed_seconds: by the formula of the bucket model, and by
  // following the buckets in time.
  std::optional<double> by_formula = {}, followed = {};

  bool in_mesh() const { return plan.mesh.given(); }
};

class StepBench {
 public:
  // Makes a model for each contender. `groups`, of the same ranks, must outlive this object. Every
  // rank must call all functions.
  StepBench(std::span<collectives::ProcessGroup> groups,
            const std::vector<StepContender>& contenders);

  void warm_up();  // two steps of each
  // Warms up, then takes so many steps of each. A row for each contender, the same on every rank.
  // Throws Error if contenders that train alike have different losses.
  std::vector<StepRow> measure(int steps);

  // One step of a contender, the one that the trainer takes; `ended` is that of take_step().
  // Returns seconds. Call a barrier first, so that the ranks begin together.
  double step(std::size_t contender, const std::function<void(const char*)>& ended = {});

  // Of this rank, in the contender's last step.
  const StepMemory& memory(std::size_t contender) const { return entries_[contender].memory; }

 private:
  struct Entry {
    StepContender contender;
    std::vector<transformer::Batch> batches;
    std::unique_ptr<transformer::Model> model;
    // Destroyed before the model, from which it removes its hooks.
    std::unique_ptr<training::ParallelStrategy> strategy;
    std::unique_ptr<autograd::Optimizer> optimizer;
    StepMemory memory;
    double loss = 0;
  };
  struct Sample;

  Entry make(const StepContender& contender) const;
  Sample take_turn(std::size_t contender);
  // So many of each contender. Rank 0 says on stderr how far it is, where it takes long.
  std::vector<Sample> take_turns(int rounds, const char* what);
  StepRow row_of(std::size_t contender, const std::vector<Sample>& samples) const;

  std::span<collectives::ProcessGroup> groups_;
  std::vector<Entry> entries_;
};

// The contenders on so many ranks, and whether their models are in memory together, so that they
// can take turns, or one by one.
using Contenders = std::function<std::vector<StepContender>(int ranks)>;
enum class InMemory { together, one_by_one };

// Runs `body` on every rank, with one group for each backend, ready to compute on the device.
// Throws Error with `advice` before that if a rank lacks memory for the contenders.
void run_on_step_ranks(const StepOptions& options, const Contenders& contenders, InMemory in_memory,
                       const std::string& advice,
                       const std::function<void(std::span<collectives::ProcessGroup>)>& body);

// Measures the contenders on these ranks, and writes what `show` makes of the rows of each backend.
void bench_steps(
    const StepOptions& options, const Contenders& contenders, InMemory in_memory,
    const std::string& advice,
    const std::function<CommandResult(const BenchRun&, const std::vector<StepRow>&)>& show);

// The rows of one backend, after those of contenders that do not communicate.
std::vector<StepRow> rows_of_group(const std::vector<StepRow>& rows, std::size_t group);

// Waits until the device has computed.
void synchronise(autograd::Device device);

}  // namespace ringside::cli
