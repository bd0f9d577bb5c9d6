// Measures parallel strategies side by side, for `ringside bench ddp` and `bench zero`.
//
// Each strategy trains its own model. They take turns step by step, so that changes of the machine
// affect all alike. A measured step is the step of the trainer. Each rank has its own batch, the
// same one for all strategies.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "cli/bench/training/bucket_forecast.hpp"
#include "cli/bench/training/step.hpp"
#include "cli/cli11_names.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/training/device_option.hpp"
#include "collectives/process_group.hpp"
#include "transformer/model.hpp"
#include "transformer/parallel_strategy.hpp"

namespace ringside::cli {

struct StrategiesOptions {
  BenchStepOptions step;
  RanksOption ranks{.count = {}, .otherwise = 2};
  std::vector<std::string> backends{"auto"};
  std::vector<std::string> strategies;
  DeviceOption device;
  std::string dtype = "fp32";  // or bf16: storage in 16 bits
  std::optional<int> threads;  // of each rank
  std::optional<double> memory_limit_gb;

  // Declares all these options, and --link. --strategies accepts some of the present `strategies`.
  void add_to(CLI::App& command);

  int threads_of_a_rank(int ranks_here) const;  // by default the cores divided by the ranks
  autograd::DType storage_dtype() const { return autograd::dtype_named(dtype); }
};

// One strategy, as a table names it.
struct StrategyName {
  std::string strategy;             // "none": a step without communication
  std::optional<double> bucket_mb;  // if its bucket size is an option
  std::size_t group = 0;            // with which it communicates

  std::string text() const {
    return bucket_mb ? fmt::format("{} {:g} MB", strategy, *bucket_mb) : strategy;
  }
};

// Times are medians over the steps; each step counts with its slowest rank.
struct StrategyRow : StrategyName {
  double step_seconds = 0;
  double network_seconds = 0;              // calls were running
  double exposed_seconds = 0;              // the rank waited for them
  std::int64_t calls = 0, bytes_sent = 0;  // per rank and step; bytes: the mean of the ranks
  double ratio = 0;                        // to the step time of the first strategy
};

class StrategiesBench {
 public:
  struct Contender : StrategyName {
    std::unique_ptr<transformer::Model> model;
    std::unique_ptr<transformer::ParallelStrategy> parallel;
    std::unique_ptr<autograd::Optimizer> optimizer;
    double loss = 0;  // of the last batch of this rank
  };
  // Called during a step: with "begin", with the name of each phase at its end, and with "end".
  using Watch = std::function<void(std::size_t contender, const char* moment)>;
  // Called after a contender has been created.
  using Made = std::function<void(std::size_t contender)>;

  // `groups` have the same ranks and different backends, and have begun on options.device
  // (begin_on_device). They and `options` must outlive this object. Every rank must call the
  // constructor and the other functions.
  StrategiesBench(
      const StrategiesOptions& options, std::span<collectives::ProcessGroup> groups,
      const std::vector<StrategyName>& strategies, const Made& made = [](std::size_t) {});

  void set_watch(Watch watch) { watch_ = std::move(watch); }

  // A row for each strategy, on every rank. Throws Error if their losses differ.
  std::vector<StrategyRow> measure();

  // When the gradients of a contender are complete in backward, on this rank: medians over a few
  // steps, in which each rank works for itself if its strategy does not communicate. On a device
  // this waits for each gradient, so backward takes longer than in a step.
  BackwardTimes time_backward(std::size_t contender);

  const transformer::Model& model(std::size_t contender) const {
    return *contenders_[contender].model;
  }

  // One step of a contender. Call a barrier first, so that the ranks begin together.
  void step(std::size_t contender) { train(contender); }

 private:
  // The measurements of one rank in one step of one strategy; all doubles, so that they can be
  // gathered.
  struct StepTimes {
    double seconds = 0, network = 0, exposed = 0, calls = 0, bytes = 0;
  };
  static_assert(sizeof(StepTimes) == 5 * sizeof(double));
  using TimesOfRanks = std::vector<std::vector<StepTimes>>;  // [rank][step x contender]

  Contender make(const StrategyName& name);
  void synchronise() const;  // waits until the device has computed
  StepTimes timed_step(std::size_t contender);
  double train(std::size_t contender);
  template <class Part>
  void in_phase(std::size_t contender, const char* name, Part part);
  TimesOfRanks from_all_ranks(const std::vector<StepTimes>& own);
  std::vector<StrategyRow> rows_of(const TimesOfRanks& ranks) const;
  void require_equal_losses();

  const StrategiesOptions& options_;
  transformer::Config config_;
  autograd::Device device_;
  std::span<collectives::ProcessGroup> groups_;
  autograd::Tensor input_, target_;
  std::vector<Contender> contenders_;
  Watch watch_ = [](std::size_t, const char*) {};
};

// Throws Error if the models of all strategies on all ranks of this machine do not fit into its
// memory. `advice` says how to need less.
void require_memory_for(const StrategiesOptions& options,
                        const std::vector<StrategyName>& strategies, int ranks, int ranks_here,
                        const std::string& advice);

}  // namespace ringside::cli
