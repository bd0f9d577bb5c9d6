// Training on a mesh beside a single process: the same model, text and options, and the largest
// difference of every gradient of every step. A new mesh is one more MeshCase.
#pragma once

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/kernels/threads/parallel.hpp"
#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"
#include "collectives/ranks/run_threads.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/sample.hpp"
#include "training/memory_need.hpp"
#include "training/mesh/mesh_strategy.hpp"
#include "training/strategies/single_process.hpp"
#include "training/trainer.hpp"

namespace ringside::testing {

using autograd::DType;
using autograd::NamedTensor;
using autograd::Tensor;
using training::ParallelStrategy;
using training::Trainer;
using transformer::Config;
using transformer::Model;

// Under a sanitizer fewer, because each step runs the same code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t many_steps = 3;
#else
constexpr std::int64_t many_steps = 10;
#endif

// What is trained, with one process or with many.
struct Problem {
  std::int64_t kv_heads = 12;
  bool tied = false;
  DType dtype = DType::fp64;
  std::int64_t layers = 12, steps = many_steps, accumulate = 1;
  training::OptimizerKind optimizer = training::OptimizerKind::sgd;
  transformer::RecomputeGroups recompute = {};
  double learning_rate = 0.3;
  double clip = 0.5;  // below every norm of these steps
  std::int64_t sequence = 12;
  std::int64_t experts = 0;  // a mixture of them in every block, 2 for each token
  double balance = 0.1;      // enough to show in every gradient
  bool qk_norm = false;

  Config config() const {
    return {.vocabulary = 257,
            .d_model = 48,
            .layers = layers,
            .heads = 12,
            .kv_heads = kv_heads,
            .d_ff = 24,
            .sequence = sequence,
            .tied_head = tied,
            .qk_norm = qk_norm,
            .experts = experts,
            .balance = balance};
  }

  training::TrainerOptions options() const {
    training::TrainerOptions options;
    options.steps = steps;
    options.batch = 24;
    options.accumulate = accumulate;
    options.recompute = recompute;
    options.sequence = sequence;
    options.optimizer = optimizer;
    options.learning_rate = learning_rate;
    options.min_learning_rate = learning_rate / 3;
    options.clip = clip;
    return options;
  }

  auto key() const {
    return std::tuple(kv_heads, tied, dtype, layers, steps, accumulate, optimizer, learning_rate,
                      sequence, experts, clip, qk_norm);
  }
};

constexpr double bucket_mb = 0.02;  // of the strategies with buckets

struct MeshCase {
  std::string mesh;
  std::string inner = "bucketed";
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  std::int64_t micro_batches = 1;  // of the problem, for the schedule
  int stages_per_rank = 0;         // the schedule's default
  std::string transport = "threads";
  context_parallel::ContextOptions context = {};

  training::MeshPlan plan() const {
    training::MeshPlan plan{parallel::MeshShape(mesh), sequence_parallel};
    training::plan_schedule(plan, schedule, micro_batches, stages_per_rank);
    plan.context = context;
    return plan;
  }
};

// What `ringside train` checks before such a run: for a rank with this coordinate along pp.
inline training::MemoryNeed need_of(const MeshCase& mesh, const Config& config, DType dtype,
                                    const training::TrainerOptions& options,
                                    int pipeline_rank = 0) {
  training::Plan plan;
  plan.config = config, plan.dtype = dtype, plan.options = options;
  plan.strategy = mesh.inner, plan.bucket_mb = bucket_mb, plan.mesh = mesh.plan();
  return training::memory_of_rank(plan, plan.mesh.data_ranks(), pipeline_rank);
}

// The cases of the test that runs.
inline Sample mesh_cases;

inline const transformer::Corpus& mesh_corpus() {
  static const transformer::Corpus corpus([] {
    transformer::Bytes text(20'000);
    for (std::size_t i = 0; i < text.size(); ++i)
      text[i] =
          static_cast<std::uint8_t>("a mesh of ranks has rows and columns; "[i * i % 38] + i % 7);
    return text;
  }());
  return corpus;
}

// What one run shows after each step: [step][parameter] gradients, whole, before clipping.
struct History {
  std::vector<std::map<std::string, std::vector<double>>> gradients;
  std::map<std::string, std::vector<double>> parameters;  // at the end
  std::vector<double> norms, losses;
  double validation = 0;
};

inline std::vector<double> numbers_in(const Tensor& tensor) {
  std::vector<double> numbers;
  autograd::dispatch_stored(tensor.dtype(), "numbers_in", [&](auto zero) {
    for (const auto value : tensor.values<decltype(zero)>())
      numbers.push_back(static_cast<double>(static_cast<autograd::Compute<decltype(zero)>>(value)));
  });
  return numbers;
}

// One rank's training. Only a rank that writes fills `history`. The strategy is destroyed before
// the model, from which it removes its hooks.
inline void train_into(History& history, const Problem& problem,
                       std::unique_ptr<ParallelStrategy> given,
                       const std::function<void(const Trainer&)>& after = {}) {
  autograd::set_threads(1);
  Model model(problem.config(), problem.dtype, autograd::Device::cpu, given->part(),
              given->model_ranks());
  const std::unique_ptr<ParallelStrategy> owned = std::move(given);
  ParallelStrategy& strategy = *owned;
  training::Observer observer;
  observer.after_step = [&](const training::StepReport& report) {
    std::map<std::string, std::vector<double>> gradients;
    strategy.visit_gradients(model, [&](const NamedTensor& whole) {
      if (strategy.writes()) gradients[whole.name] = numbers_in(whole.tensor);
    });
    if (!strategy.writes()) return;
    history.gradients.push_back(std::move(gradients));
    history.norms.push_back(report.gradient_norm);
    history.losses.push_back(report.loss);
  };
  Trainer trainer(model, mesh_corpus(), strategy, problem.options(), observer);
  trainer.run();
  const auto validation = trainer.validate();
  strategy.visit_parameters(model, [&](const NamedTensor& whole) {
    if (strategy.writes()) history.parameters[whole.name] = numbers_in(whole.tensor);
  });
  if (strategy.writes()) history.validation = validation.value();
  if (after) after(trainer);
}

// The single process that all meshes are compared with; trained once for each problem.
inline const History& alone(const Problem& problem) {
  static std::map<decltype(problem.key()), History> kept;
  const auto found = kept.find(problem.key());
  if (found != kept.end()) return found->second;
  History& history = kept[problem.key()];
  train_into(history, problem, std::make_unique<training::SingleProcess>());
  return history;
}

// Runs `body` on every rank of the mesh, with its strategy. Ranks are threads; if mesh.transport is
// "tcp" or "shm", they communicate as processes do.
inline void on_mesh(const MeshCase& mesh, const Config& config,
                    const std::function<void(std::unique_ptr<training::MeshStrategy>,
                                             collectives::ProcessGroup&)>& body,
                    const collectives::GroupOptions& options = {}) {
  const training::MeshPlan plan = mesh.plan();
  const auto as_rank = [&](collectives::ProcessGroup& world) {
    autograd::set_threads(1);
    body(std::make_unique<training::MeshStrategy>(world, plan, config, mesh.inner, bucket_mb),
         world);
  };
  if (mesh.transport == "threads")
    return collectives::run_threads(plan.shape.ranks(), as_rank, options);
  for (const std::string& outcome :
       tests::run_over(mesh.transport.c_str(), plan.shape.ranks(), as_rank, options))
    CHECK(outcome == "");
}

// The largest difference of an entry, relative to the largest entry of `expected`.
inline double difference(const std::vector<double>& expected, const std::vector<double>& seen) {
  REQUIRE(expected.size() == seen.size());
  double largest = 1e-300, worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(expected[i] - seen[i]));
  }
  return std::isnan(worst) ? INFINITY : worst / largest;
}

// The size of the difference relative to that of `expected`, both as root mean squares.
inline double mean_difference(const std::vector<double>& expected,
                              const std::vector<double>& seen) {
  double all = 1e-300, different = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    all += expected[i] * expected[i];
    different += (expected[i] - seen[i]) * (expected[i] - seen[i]);
  }
  return std::sqrt(different / all);
}

struct Worst {
  double gradient = 0, mean_gradient = 0, norm = 0, loss = 0, parameter = 0;
};

inline Worst compare(const History& expected, const History& seen) {
  Worst worst;
  REQUIRE(expected.gradients.size() == seen.gradients.size());
  for (std::size_t step = 0; step < expected.gradients.size(); ++step) {
    REQUIRE(expected.gradients[step].size() == seen.gradients[step].size());
    for (const auto& [name, gradient] : expected.gradients[step]) {
      CAPTURE(name);
      REQUIRE(seen.gradients[step].contains(name));
      worst.gradient =
          std::max(worst.gradient, difference(gradient, seen.gradients[step].at(name)));
      worst.mean_gradient =
          std::max(worst.mean_gradient, mean_difference(gradient, seen.gradients[step].at(name)));
    }
    worst.norm = std::max(worst.norm, std::abs(seen.norms[step] / expected.norms[step] - 1));
    worst.loss = std::max(worst.loss, std::abs(seen.losses[step] / expected.losses[step] - 1));
  }
  for (const auto& [name, parameter] : expected.parameters)
    worst.parameter = std::max(worst.parameter, difference(parameter, seen.parameters.at(name)));
  return worst;
}

}  // namespace ringside::testing
