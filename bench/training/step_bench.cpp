#include "bench/training/step_bench.hpp"

#include <cmath>
#include <numeric>
#include <span>
#include <string_view>

#include "autograd/optim/adamw.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "cli/pictures/median.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/work.hpp"
#include "training/step.hpp"

namespace ringside::cli {
namespace {

// `figure` is MemoryUse::current or MemoryUse::peak.
BytesByKind memory_by_kind(std::int64_t autograd::MemoryUse::*figure) {
  BytesByKind bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<double>(autograd::memory_use(autograd::all_memory_kinds[i]).*figure);
  return bytes;
}

BytesByKind current_memory() {
  return memory_by_kind(&autograd::MemoryUse::current);
}

BytesByKind operator-(BytesByKind a, const BytesByKind& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

}  // namespace

double of(const BytesByKind& bytes, autograd::MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

double held(const BytesByKind& bytes) {
  using enum autograd::MemoryKind;
  return of(bytes, parameters) + of(bytes, gradients) + of(bytes, optimizer_state);
}

void StepBench::add(std::unique_ptr<training::ParallelStrategy> strategy,
                    std::vector<transformer::Batch> batches, collectives::ProcessGroup& group,
                    int steps_of_round) {
  const BytesByKind before = current_memory();
  auto model = std::make_unique<transformer::Model>(config_, dtype_, device_, strategy->part(),
                                                    strategy->tensor_division());
  strategy->prepare(*model);
  auto optimizer = strategy->make_optimizer(
      {{.parameters = model->named_parameters(), .learning_rate = 1e-4, .weight_decay = 0.1}},
      [](std::vector<autograd::ParameterGroup> groups) {
        return std::make_unique<autograd::AdamW>(std::move(groups));
      });
  contenders_.push_back({&group, std::move(batches), std::move(model), std::move(strategy),
                         std::move(optimizer), StepMemory{}, 0, steps_of_round});
  StepMemory& memory = contenders_.back().memory;
  memory.made = memory.after_step = current_memory() - before;
}

void StepBench::warm_up(int steps) {
  for (int i = 0; i < steps; ++i)
    for (std::size_t c = 0; c < contenders_.size(); ++c) timed_step(c);
}

std::vector<StepFigures> StepBench::measure(int steps) {
  std::vector<StepTimes> own;
  for (int i = 0; i < steps; ++i)
    for (std::size_t c = 0; c < contenders_.size(); ++c) own.push_back(timed_step(c));
  std::vector<StepTimes> all(own.size() * static_cast<std::size_t>(world_.size()));
  const auto bytes = [](const auto& times) { return times.size() * sizeof(StepTimes); };
  world_.all_gather({own.data(), bytes(own), collectives::DataType::uint8},
                    {all.data(), bytes(all), collectives::DataType::uint8}, "step times");
  std::vector<StepFigures> figures;
  for (std::size_t c = 0; c < contenders_.size(); ++c)
    figures.push_back(figures_of(c, all, own.size()));
  return figures;
}

double StepBench::step(std::size_t c) {
  Contender& one = contenders_[c];
  StepMemory& memory = one.memory;
  // What the other contenders hold does not change during the step.
  const BytesByKind others = current_memory() - memory.after_step;
  autograd::reset_peak_memory();
  const auto start = Clock::now();
  const auto ended = [&](std::string_view part) {
    if (part == "finish gradients") memory.before_update = current_memory() - others;
    if (part == "optimizer") memory.after_update = current_memory() - others;
  };
  one.loss =
      training::take_step(*one.strategy, *one.model, *one.optimizer, one.batches, 1, ended).loss;
  synchronise(device_);
  const double seconds = seconds_since(start);
  memory.after_step = current_memory() - others;
  memory.peak = memory_by_kind(&autograd::MemoryUse::peak) - others;
  memory.peak_of_all = static_cast<double>(autograd::memory_use().peak) -
                       std::accumulate(others.begin(), others.end(), 0.0);
  return seconds;
}

StepBench::StepTimes StepBench::timed_step(std::size_t c) {
  world_.barrier();  // the ranks begin together
  const Contender& one = contenders_[c];
  const auto times = one.group->times();
  const auto bytes = one.group->traffic().payload_bytes_sent;
  const double waited = one.strategy->communication_seconds();
  double seconds = 0;
  for (int i = 0; i < one.steps_of_round; ++i) seconds += step(c);
  const auto after = one.group->times();
  const double steps = one.steps_of_round;
  return {seconds / steps, (after.running - times.running) / steps,
          (one.strategy->communication_seconds() - waited) / steps,
          static_cast<double>(after.calls - times.calls),
          static_cast<double>(one.group->traffic().payload_bytes_sent - bytes) / steps};
}

// `count` is the number of a rank's times: [step x contender].
StepFigures StepBench::figures_of(std::size_t c, const std::vector<StepTimes>& all,
                                  std::size_t count) const {
  std::vector<double> seconds, network, exposed;
  for (std::size_t i = c; i < count; i += contenders_.size()) {
    StepTimes slowest;
    for (std::size_t at = i; at < all.size(); at += count)
      if (all[at].seconds > slowest.seconds) slowest = all[at];
    seconds.push_back(slowest.seconds);
    network.push_back(slowest.network);
    exposed.push_back(slowest.exposed);
  }
  double bytes = 0;
  for (std::size_t at = c; at < all.size(); at += count) bytes += all[at].bytes;
  return {median(seconds), median(network), median(exposed),
          static_cast<std::int64_t>(all[c].calls), std::llround(bytes / world_.size())};
}

double StepBench::loss(std::size_t c) {
  return contenders_[c].strategy->average(contenders_[c].loss);
}

// Sums in a different order differ in the last bits, and AdamW amplifies this for gradients near
// zero. A contender that loses a gradient differs by far more.
void require_equal_losses(const std::vector<std::pair<std::string, double>>& losses) {
  for (const auto& [name, loss] : losses) {
    const auto& [first, wanted] = losses.front();
    require(std::abs(loss - wanted) <= 1e-3 * std::abs(wanted),
            "{} has a loss of {}, but {} has {}: one of them trains wrongly", name, loss, first,
            wanted);
  }
}

double over_ranks(double value, collectives::ReduceOp op, collectives::ProcessGroup& group) {
  group.all_reduce(std::span(&value, 1), op);
  return value;
}

void synchronise(autograd::Device device) {
  if (device != autograd::Device::cpu) autograd::device_memory(device).synchronise();
}

}  // namespace ringside::cli
