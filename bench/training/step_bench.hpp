// The harness of `ringside bench ddp`, `bench zero` and `bench mesh`: measures time, traffic and
// memory of the training step of several contenders, which take turns step by step, so that changes
// of the machine affect all alike.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "autograd/tensor/storage.hpp"
#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "transformer/config.hpp"
#include "transformer/data/batches.hpp"
#include "transformer/model.hpp"

namespace ringside::cli {

// The steps of one contender. Times are medians; each step counts with its slowest rank.
struct StepFigures {
  double step_seconds = 0;
  double network_seconds = 0;              // calls of the contender's group were running
  double exposed_seconds = 0;              // the rank waited for other ranks
  std::int64_t calls = 0, bytes_sent = 0;  // of this group, per rank and step; bytes: the mean
  // of the ranks. Calls of a round are those of its only step that makes some.
};

// Bytes in tensors, by autograd::MemoryKind.
using BytesByKind = std::array<double, autograd::all_memory_kinds.size()>;
double of(const BytesByKind& bytes, autograd::MemoryKind kind);
double held(const BytesByKind& bytes);  // parameters, gradients and optimizer state

// The memory of one contender on this rank in its last step.
struct StepMemory {
  BytesByKind made{}, before_update{}, after_update{}, after_step{};
  BytesByKind peak{};  // of each kind, possibly at different moments
  double peak_of_all = 0;
};

class StepBench {
 public:
  // All contenders train a model of this configuration. `world` must outlive this object. Every
  // rank must call all functions.
  StepBench(collectives::ProcessGroup& world, const transformer::Config& config,
            autograd::DType dtype, autograd::Device device)
      : world_(world), config_(config), dtype_(dtype), device_(device) {}

  // Makes a contender with a model of its own, which it trains on `batches` in every step. Its
  // calls and bytes are counted in `group`. One that communicates after a round of steps takes a
  // whole round in its turn, and its figures are the mean of these steps.
  void add(std::unique_ptr<training::ParallelStrategy> strategy,
           std::vector<transformer::Batch> batches, collectives::ProcessGroup& group,
           int steps_of_round = 1);

  void warm_up(int steps);
  // Figures of each contender, the same on every rank.
  std::vector<StepFigures> measure(int steps);

  // Of a contender's last step, over all ranks. This communicates.
  double loss(std::size_t contender);

  const StepMemory& memory(std::size_t contender) const { return contenders_[contender].memory; }

  // One step of a contender, the one that the trainer takes. Returns seconds. Call a barrier first,
  // so that the ranks begin together.
  double step(std::size_t contender);

 private:
  struct Contender {
    collectives::ProcessGroup* group;
    std::vector<transformer::Batch> batches;
    std::unique_ptr<transformer::Model> model;
    // Destroyed before the model, from which it removes its hooks.
    std::unique_ptr<training::ParallelStrategy> strategy;
    std::unique_ptr<autograd::Optimizer> optimizer;
    StepMemory memory;
    double loss = 0;  // of the last step
    int steps_of_round = 1;
  };
  // The measurements of one rank in one step of one contender; all doubles, so that they can be
  // gathered.
  struct StepTimes {
    double seconds = 0, network = 0, exposed = 0, calls = 0, bytes = 0;
  };
  static_assert(sizeof(StepTimes) == 5 * sizeof(double));
  StepTimes timed_step(std::size_t contender);
  StepFigures figures_of(std::size_t contender, const std::vector<StepTimes>& all,
                         std::size_t count) const;

  collectives::ProcessGroup& world_;
  transformer::Config config_;
  autograd::DType dtype_;
  autograd::Device device_;
  std::vector<Contender> contenders_;
};

// Throws Error if the losses of these contenders differ: all see the same batch.
void require_equal_losses(const std::vector<std::pair<std::string, double>>& losses);

// One number of each rank, reduced. Every rank must call it.
double over_ranks(double value, collectives::ReduceOp op, collectives::ProcessGroup& group);

// Waits until the device has computed.
void synchronise(autograd::Device device);

}  // namespace ringside::cli
