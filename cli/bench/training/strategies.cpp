#include "cli/bench/training/strategies.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/profile.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/trace.hpp"
#include "cli/bench/median.hpp"
#include "cli/one_of.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/work.hpp"
#include "ddp/bucketed.hpp"
#include "parallel/gradient_hooks.hpp"
#include "parallel/replicate.hpp"
#include "transformer/memory.hpp"
#include "transformer/single_process.hpp"

namespace ringside::cli {

using autograd::Tensor;
using collectives::ProcessGroup;
using collectives::ReduceOp;

namespace {

constexpr int warmup_steps = 2;

double bucket_mb_of(const StrategyName& name) {
  return name.bucket_mb.value_or(ddp::Bucketed::default_bucket_mb);
}

}  // namespace

void StrategiesOptions::add_to(CLI::App& command) {
  step.add_to(command);
  add_ranks_option(command, ranks);
  add_backends_option(command, backends);
  add_link_option(command);
  add_device_option(command, device);
  add_device_backend_option(command, device);
  command.add_option("--strategies", strategies, "Parallel strategies to measure")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->check(one_of(strategies))
      ->capture_default_str();
  command.add_option("--threads", threads, "Threads of each rank [cores divided by ranks]")
      ->type_name("N")
      ->check(at_least_one("thread"));
  add_memory_limit(command, memory_limit_gb);
}

int StrategiesOptions::threads_of_a_rank(int ranks_here) const {
  return threads.value_or(
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks_here));
}

StrategiesBench::StrategiesBench(const StrategiesOptions& options, std::span<ProcessGroup> groups,
                                 const std::vector<StrategyName>& strategies, const Made& made)
    : options_(options),
      config_(options.step.config()),
      device_(device_from(options.device, options.storage_dtype())),
      groups_(groups) {
  const auto own = 2 * static_cast<std::uint64_t>(groups[0].rank());
  input_ = options.step.tokens(own), target_ = options.step.tokens(own + 1);
  for (const StrategyName& name : strategies) {
    contenders_.push_back(make(name));
    made(contenders_.size() - 1);
  }
}

StrategiesBench::Contender StrategiesBench::make(const StrategyName& name) {
  Contender one{name,
                std::make_unique<transformer::Model>(config_, options_.storage_dtype(), device_),
                nullptr, nullptr};
  if (name.strategy == "none")
    one.parallel = std::make_unique<transformer::SingleProcess>();
  else
    one.parallel = make_strategy(name.strategy, groups_[name.group], bucket_mb_of(name));
  one.parallel->prepare(*one.model);
  one.optimizer = one.parallel->make_optimizer(
      {{.parameters = one.model->named_parameters(), .learning_rate = 1e-4, .weight_decay = 0.1}},
      [](std::vector<autograd::ParameterGroup> groups) {
        return std::make_unique<autograd::AdamW>(std::move(groups));
      });
  return one;
}

void StrategiesBench::synchronise() const {
  if (device_ != autograd::Device::cpu) autograd::device_memory(device_).synchronise();
}

std::vector<StrategyRow> StrategiesBench::measure() {
  for (int i = 0; i < warmup_steps; ++i)
    for (std::size_t c = 0; c < contenders_.size(); ++c) timed_step(c);
  std::vector<StepTimes> own;
  for (int i = 0; i < options_.step.steps; ++i)
    for (std::size_t c = 0; c < contenders_.size(); ++c) own.push_back(timed_step(c));
  require_equal_losses();
  return rows_of(from_all_ranks(own));
}

StrategiesBench::StepTimes StrategiesBench::timed_step(std::size_t c) {
  groups_[0].barrier();  // the ranks begin together
  const ProcessGroup& group = groups_[contenders_[c].group];
  const auto times = group.times();
  const auto traffic = group.traffic();
  watch_(c, "begin");
  const double seconds = train(c);
  watch_(c, "end");
  const auto after = group.times();
  return {seconds, after.running - times.running, after.blocked - times.blocked,
          static_cast<double>(after.calls - times.calls),
          static_cast<double>(group.traffic().payload_bytes_sent - traffic.payload_bytes_sent)};
}

BackwardTimes StrategiesBench::time_backward(std::size_t c) {
  constexpr int steps = 5;
  const auto parameters = parallel::trained_parameters(*contenders_[c].model);
  std::vector<std::vector<double>> ready(parameters.size());
  std::vector<double> backward;
  Clock::time_point began;
  parallel::GradientHooks hooks;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    hooks.add(parameters[i].tensor, [&, i](const Tensor&) {
      synchronise();
      ready[i].push_back(seconds_since(began));
    });
  const Watch before = std::exchange(watch_, [&](std::size_t, const char* moment) {
    if (moment != std::string_view("forward") && moment != std::string_view("backward")) return;
    synchronise();
    if (moment == std::string_view("forward"))
      began = Clock::now();
    else
      backward.push_back(seconds_since(began));
  });
  for (int i = 0; i < steps; ++i) {
    groups_[0].barrier();
    train(c);
  }
  watch_ = before;
  BackwardTimes times;
  times.seconds = median(backward);
  for (const auto& each : ready) times.ready.push_back(median(each));
  return times;
}

// The step that the trainer takes. Returns seconds.
double StrategiesBench::train(std::size_t c) {
  Contender& one = contenders_[c];
  const auto start = Clock::now();
  one.parallel->clear_gradients(*one.optimizer);
  Tensor loss;
  in_phase(c, "forward", [&] { loss = one.model->loss(input_, target_); });
  in_phase(c, "backward", [&] { autograd::backward(loss); });
  in_phase(c, "finish gradients", [&] { one.parallel->finish_gradients(); });
  in_phase(c, "clip", [&] { one.parallel->clip_gradients(*one.optimizer, 1); });
  in_phase(c, "optimizer", [&] { one.parallel->step(*one.optimizer); });
  synchronise();
  const double seconds = seconds_since(start);
  one.loss = loss.item();
  return seconds;
}

template <class Part>
void StrategiesBench::in_phase(std::size_t c, const char* name, Part part) {
  {
    autograd::Profile::begin();
    const TracedPhase phase(name);
    part();
  }
  watch_(c, name);
}

StrategiesBench::TimesOfRanks StrategiesBench::from_all_ranks(const std::vector<StepTimes>& own) {
  const std::size_t count = own.size(), size = static_cast<std::size_t>(groups_[0].size());
  std::vector<StepTimes> all(count * size);
  const auto bytes = [](auto& times) { return times.size() * sizeof(StepTimes); };
  groups_[0].all_gather({own.data(), bytes(own), collectives::DataType::uint8},
                        {all.data(), bytes(all), collectives::DataType::uint8}, "step times");
  TimesOfRanks ranks;
  for (auto begin = all.begin(); begin != all.end(); begin += static_cast<std::ptrdiff_t>(count))
    ranks.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
  return ranks;
}

std::vector<StrategyRow> StrategiesBench::rows_of(const TimesOfRanks& ranks) const {
  std::vector<StrategyRow> rows;
  for (std::size_t c = 0; c < contenders_.size(); ++c) {
    std::vector<double> seconds, network, exposed;
    for (std::size_t i = c; i < ranks[0].size(); i += contenders_.size()) {
      const auto slowest = std::max_element(
          ranks.begin(), ranks.end(),
          [i](const auto& a, const auto& b) { return a[i].seconds < b[i].seconds; });
      seconds.push_back((*slowest)[i].seconds), network.push_back((*slowest)[i].network),
          exposed.push_back((*slowest)[i].exposed);
    }
    StrategyRow row{contenders_[c], median(seconds), median(network), median(exposed)};
    double bytes = 0;
    for (const auto& rank : ranks) bytes += rank[c].bytes;
    row.calls = static_cast<std::int64_t>(ranks[0][c].calls);
    row.bytes_sent = std::llround(bytes / static_cast<double>(ranks.size()));
    row.ratio = row.step_seconds / (rows.empty() ? row : rows.front()).step_seconds;
    rows.push_back(row);
  }
  return rows;
}

// Sums in a different order differ in the last bits, and AdamW amplifies this for gradients near
// zero. A strategy that loses a gradient differs by far more.
void StrategiesBench::require_equal_losses() {
  const Contender* first = nullptr;
  double wanted = 0;
  for (auto& one : contenders_) {
    double mean = one.loss;
    groups_[0].all_reduce(std::span(&mean, 1), ReduceOp::avg);
    if (one.strategy == "none") continue;
    if (!first) first = &one, wanted = mean;
    require(std::abs(mean - wanted) <= 1e-3 * std::abs(wanted),
            "{} has a loss of {}, but {} has {}: one of them trains wrongly", one.text(), mean,
            first->text(), wanted);
  }
}

void require_memory_for(const StrategiesOptions& options,
                        const std::vector<StrategyName>& strategies, int ranks, int ranks_here,
                        const std::string& advice) {
  const autograd::DType dtype = options.storage_dtype();
  const autograd::Device device = device_from(options.device, dtype);
  // On a GPU each rank checks its own memory, not the launcher.
  if (device == autograd::Device::cuda && !environment("RANK")) return;
  transformer::TrainerOptions training;
  training.batch = options.step.batch * ranks, training.sequence = options.step.sequence;
  transformer::MemoryNeed all;
  for (const StrategyName& name : strategies) {
    auto held = held_by(name.strategy, ranks, bucket_mb_of(name));
    held.device = device;
    const auto need =
        transformer::memory_needed(options.step.config(), training, dtype, ranks, held);
    all.parameters += need.parameters, all.gradients += need.gradients,
        all.optimizer += need.optimizer;
    all.activations = std::max(all.activations, need.activations);
  }
  require_memory(all, ranks_here, options.memory_limit_gb, advice, device);
}

}  // namespace ringside::cli
