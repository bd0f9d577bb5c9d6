// Parallel forms side by side, for `ringside bench ddp` and `bench zero`: each trains a model of
// its own, and they take turns step by step, because a machine drifts. What is measured is the step
// that the trainer takes; every rank has the same batch for all forms.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "autograd/optim/optimizer.hpp"
#include "cli/bench/training/step.hpp"
#include "cli/launcher/ranks.hpp"
#include "collectives/process_group.hpp"
#include "transformer/model.hpp"
#include "transformer/parallel_strategy.hpp"

namespace ringside::cli {

struct StrategiesOptions {
  BenchStepOptions step;
  RanksOption ranks{.count = {}, .otherwise = 2};
  std::vector<std::string> backends{"auto"};
  std::vector<std::string> strategies;
  std::optional<int> threads;  // of each rank
  std::optional<double> memory_limit_gb;

  // Declares all of it, and --link; --forms are some of those that are there already.
  void add_to(CLI::App& command);

  int threads_of_a_rank(int ranks_here) const;  // as said, or the cores divided by the ranks
};

// One form, as it stands in a table.
struct StrategyName {
  std::string strategy;             // "none": a step without communication
  std::optional<double> bucket_mb;  // where it has buckets whose size is chosen
  std::size_t group = 0;            // by which it communicates

  std::string text() const {
    return bucket_mb ? fmt::format("{} {:g} MB", strategy, *bucket_mb) : strategy;
  }
};

// Times are medians over the steps, each of the rank that was slowest in it.
struct FormRow : StrategyName {
  double step_seconds = 0;
  double network_seconds = 0;              // calls were under way
  double exposed_seconds = 0;              // the rank stood still for them
  std::int64_t calls = 0, bytes_sent = 0;  // of a rank, in a step; bytes: the mean of the ranks
  double ratio = 0;                        // to the step of the first form of all
};

class StrategiesBench {
 public:
  struct Contender : StrategyName {
    std::unique_ptr<transformer::Model> model;
    std::unique_ptr<transformer::ParallelStrategy> parallel;
    std::unique_ptr<autograd::Optimizer> optimizer;
    double loss = 0;  // of this rank's last batch
  };
  // Told where a step is: "begin", then the names of its phases, each when it is over, then "end".
  using Watch = std::function<void(std::size_t contender, const char* moment)>;
  // Told when a contender has been made.
  using Made = std::function<void(std::size_t contender)>;

  // `groups` are of the same ranks, over different backends. They and `options` must outlive this.
  // Every rank must call it, and what follows.
  StrategiesBench(
      const StrategiesOptions& options, std::span<collectives::ProcessGroup> groups,
      const std::vector<StrategyName>& strategies, const Made& made = [](std::size_t) {});

  void set_watch(Watch watch) { watch_ = std::move(watch); }

  // A row for each form, on every rank. Throws Error if one form's loss is not the others'.
  std::vector<FormRow> measure();

  // Lets the contender take one step. Figures are better if all ranks have come to a barrier
  // before.
  void step(std::size_t contender) { train(contender); }

 private:
  // What one rank has seen in one step of one form: all numbers, so that they can be gathered.
  struct StepTimes {
    double seconds = 0, network = 0, exposed = 0, calls = 0, bytes = 0;
  };
  static_assert(sizeof(StepTimes) == 5 * sizeof(double));
  using TimesOfRanks = std::vector<std::vector<StepTimes>>;  // [rank][step x contender]

  Contender make(const StrategyName& name);
  StepTimes timed_step(std::size_t contender);
  double train(std::size_t contender);
  template <class Part>
  void in_phase(std::size_t contender, const char* name, Part part);
  TimesOfRanks from_all_ranks(const std::vector<StepTimes>& own);
  std::vector<FormRow> rows_of(const TimesOfRanks& ranks) const;
  void require_equal_losses();

  const StrategiesOptions& options_;
  transformer::Config config_;
  std::span<collectives::ProcessGroup> groups_;
  autograd::Tensor input_, target_;
  std::vector<Contender> contenders_;
  Watch watch_ = [](std::size_t, const char*) {};
};

// Throws Error if so many ranks on this machine, and each of these forms on each of them, would not
// fit into its memory. `advice` says what can be left out.
void require_memory_for(const StrategiesOptions& options,
                        const std::vector<StrategyName>& strategies, int ranks, int ranks_here,
                        const std::string& advice);

}  // namespace ringside::cli
