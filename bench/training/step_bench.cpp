#include "bench/training/step_bench.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "autograd/optim/adamw.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "cli/pictures/median.hpp"
#include "cli/pictures/terminal.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/execution/backend.hpp"
#include "training/memory_check.hpp"
#include "training/mesh/mesh_strategy.hpp"
#include "training/product_calibration.hpp"
#include "training/step.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "training/strategies/single_process.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using training::MemoryNeed;
using training::MeshStrategy;
using training::Plan;

constexpr std::size_t axes = static_cast<std::size_t>(parallel::Axis::ep) + 1;

// `figure` is MemoryUse::current or MemoryUse::peak.
BytesByKind memory_by_kind(std::int64_t autograd::MemoryUse::*figure) {
  BytesByKind bytes{};
  for (const autograd::MemoryKind kind : autograd::all_memory_kinds)
    bytes[static_cast<std::size_t>(kind)] = static_cast<double>(autograd::memory_use(kind).*figure);
  bytes.back() = static_cast<double>(autograd::memory_use().*figure);
  return bytes;
}

BytesByKind current_memory() {
  return memory_by_kind(&autograd::MemoryUse::current);
}

BytesByKind operator-(BytesByKind a, const BytesByKind& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

std::unique_ptr<training::ParallelStrategy> strategy_of(const Plan& plan, ProcessGroup& group) {
  if (plan.mesh.given())
    return std::make_unique<MeshStrategy>(group, plan.mesh, plan.config, plan.strategy,
                                          plan.bucket_mb);
  if (plan.strategy == "single") return std::make_unique<training::SingleProcess>();
  return training::make_strategy(plan.strategy, group, plan.bucket_mb);
}

// Sums in a different order differ in the last bits, and AdamW amplifies this for gradients near
// zero. A contender that loses a gradient differs by far more.
void require_equal_losses(const std::vector<StepRow>& rows) {
  const StepRow* first = nullptr;
  for (const StepRow& row : rows) {
    if (row.plan.strategy == "single" || training::is_lossy(row.plan.strategy)) continue;
    if (!first) first = &row;
    require(std::abs(row.loss - first->loss) <= 1e-3 * std::abs(first->loss),
            "{} has a loss of {}, but {} has {}: one of them trains wrongly", row.text(), row.loss,
            first->text(), first->loss);
  }
}

// What a rank needs that has both models, of which one computes at a time.
MemoryNeed together(const MemoryNeed& a, const MemoryNeed& b) {
  MemoryNeed sum{a.parameters + b.parameters, a.gradients + b.gradients, a.optimizer + b.optimizer,
                 std::max(a.activations, b.activations)};
  sum.peak = sum.parameters + sum.gradients + sum.optimizer + sum.activations;
  return sum;
}

}  // namespace

std::string StepContender::text() const {
  return bucket_mb ? fmt::format("{} {:g} MB", name, *bucket_mb) : name;
}

std::vector<MemoryNeed> StepContender::needs(int ranks) const {
  std::vector<MemoryNeed> all;
  for (int i = 0; i < (plan.mesh.given() ? plan.mesh.shape.size(parallel::Axis::pp) : 1); ++i)
    all.push_back(training::memory_of_rank(plan, plan.data_ranks(ranks), i));
  return all;
}

std::vector<StepContender> strategies_of(const StepOptions& options,
                                         const std::vector<std::string>& strategies,
                                         const std::vector<double>& buckets_mb, int ranks) {
  std::vector<StepContender> contenders;
  for (std::size_t backend = 0; backend < options.backends.size(); ++backend)
    for (const std::string& strategy : strategies) {
      std::vector<std::optional<double>> sizes{std::nullopt};
      if (strategy == "bucketed" || (strategy.starts_with("zero") && strategy != "zero3"))
        sizes.assign(buckets_mb.begin(), buckets_mb.end());
      for (const std::optional<double> mb : sizes) {
        contenders.push_back({strategy, options.plan(ranks, strategy), mb, backend});
        if (mb) contenders.back().plan.bucket_mb = *mb;
      }
    }
  return contenders;
}

transformer::Batch random_batch(const Plan& plan, transformer::Share share,
                                std::span<const transformer::TokenRange> tokens) {
  constexpr std::size_t windows = 4096;
  std::vector<std::int32_t> text(windows + static_cast<std::size_t>(plan.options.sequence));
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<std::int32_t>(
        random_below(static_cast<std::uint64_t>(plan.config.vocabulary), 1, 0, i));
  const transformer::PackedTokens packed(text, plan.config.vocabulary);
  return transformer::Batches(packed, plan.options.sequence, 1).draw(0, share, tokens);
}

double of(const BytesByKind& bytes, autograd::MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

double held(const BytesByKind& bytes) {
  using enum autograd::MemoryKind;
  return of(bytes, parameters) + of(bytes, gradients) + of(bytes, optimizer_state);
}

// What one rank measures in one turn of a contender. A turn is a step, or as many as it takes until
// the ranks communicate: then times and bytes are the mean. All are doubles: samples are gathered.
struct StepBench::Sample {
  double seconds = 0, network = 0, exposed = 0, calls = 0, bytes = 0;
  std::array<double, axes> along{};  // bytes by the axes of a mesh
  double loss = 0;                   // of the last step, as the memory
  StepMemory memory;
};

StepBench::StepBench(std::span<ProcessGroup> groups, const std::vector<StepContender>& contenders)
    : groups_(groups) {
  for (const StepContender& contender : contenders) entries_.push_back(make(contender));
}

StepBench::Entry StepBench::make(const StepContender& contender) const {
  const BytesByKind before = current_memory();
  const Plan& plan = contender.plan;
  auto strategy = strategy_of(plan, groups_[contender.group]);
  auto model = std::make_unique<transformer::Model>(plan.config, plan.dtype, plan.device,
                                                    strategy->part(), strategy->model_ranks());
  strategy->prepare(*model);
  auto optimizer = strategy->make_optimizer(
      {{.parameters = model->named_parameters(), .learning_rate = 1e-4, .weight_decay = 0.1}},
      [](std::vector<autograd::ParameterGroup> groups) {
        return std::make_unique<autograd::AdamW>(std::move(groups));
      });
  const BytesByKind bytes = current_memory() - before;
  // This rank's share of the batch, in micro-batches.
  std::vector<transformer::Batch> batches;
  const std::int64_t count = plan.options.accumulate,
                     each = plan.options.batch / plan.data_ranks(groups_[0].size()) / count;
  for (std::int64_t i = 0; i < count; ++i)
    batches.push_back(random_batch(plan, {(strategy->data_rank() * count + i) * each, each},
                                   strategy->tokens_of(plan.options.sequence)));
  return {contender,           std::move(batches),   std::move(model),
          std::move(strategy), std::move(optimizer), {bytes, bytes, bytes, bytes}};
}

void StepBench::warm_up() {
  take_turns(2, "warming up");
}

std::vector<StepBench::Sample> StepBench::take_turns(int rounds, const char* what) {
  const bool tells = groups_[0].rank() == 0;
  std::vector<Sample> own;
  for (int i = 0; i < rounds; ++i) {
    if (tells) show_progress(fmt::format("{}: step {} of {}", what, i + 1, rounds));
    for (std::size_t c = 0; c < entries_.size(); ++c) own.push_back(take_turn(c));
  }
  if (tells) show_progress("");
  return own;
}

std::vector<StepRow> StepBench::measure(int steps) {
  warm_up();
  const std::vector<Sample> own = take_turns(steps, "measuring");
  std::vector<Sample> all(own.size() * static_cast<std::size_t>(groups_[0].size()));
  const auto bytes = [](const auto& samples) { return samples.size() * sizeof(Sample); };
  groups_[0].all_gather({own.data(), bytes(own), collectives::DataType::uint8},
                        {all.data(), bytes(all), collectives::DataType::uint8}, "samples");
  std::vector<StepRow> rows;
  for (std::size_t c = 0; c < entries_.size(); ++c) rows.push_back(row_of(c, all));
  require_equal_losses(rows);
  return rows;
}

double StepBench::step(std::size_t c, const std::function<void(const char*)>& ended) {
  Entry& entry = entries_[c];
  StepMemory& memory = entry.memory;
  // What the other contenders hold does not change during the step.
  const BytesByKind others = current_memory() - memory.after_step;
  autograd::reset_peak_memory();
  const auto start = Clock::now();
  const auto noted = [&](const char* part) {
    if (part == std::string_view("finish gradients"))
      memory.before_update = current_memory() - others;
    if (ended) ended(part);
  };
  entry.loss =
      training::take_step(*entry.strategy, *entry.model, *entry.optimizer, entry.batches, 1, noted)
          .loss;
  synchronise(entry.contender.plan.device);
  const double seconds = seconds_since(start);
  memory.after_step = current_memory() - others;
  memory.peak = memory_by_kind(&autograd::MemoryUse::peak) - others;
  return seconds;
}

StepBench::Sample StepBench::take_turn(std::size_t c) {
  groups_[0].barrier();  // the ranks begin together
  const Entry& entry = entries_[c];
  const ProcessGroup& group = groups_[entry.contender.group];
  Sample sample;
  const auto count = [&](int sign) {  // what was counted before the steps is subtracted
    sample.network += sign * group.times().running;
    sample.exposed += sign * entry.strategy->communication_seconds();
    sample.calls += sign * static_cast<double>(group.times().calls);
    sample.bytes += sign * static_cast<double>(group.traffic().payload_bytes_sent);
    if (const auto* mesh = dynamic_cast<const MeshStrategy*>(entry.strategy.get()))
      for (const auto& [axis, bytes] : mesh->bytes_sent_by_axis())
        sample.along[static_cast<std::size_t>(axis)] += sign * static_cast<double>(bytes);
  };
  count(-1);
  const int steps = training::steps_of_round(entry.contender.plan.strategy);
  for (int i = 0; i < steps; ++i) sample.seconds += step(c);
  count(1);
  for (double* of_all : {&sample.seconds, &sample.network, &sample.exposed, &sample.bytes})
    *of_all /= steps;
  sample.loss = entry.loss, sample.memory = entry.memory;
  return sample;
}

// `samples` is [rank x turn x contender].
StepRow StepBench::row_of(std::size_t c, const std::vector<Sample>& samples) const {
  const auto ranks = static_cast<std::size_t>(groups_[0].size());
  const std::size_t turns = samples.size() / ranks / entries_.size();
  const auto sample_of = [&](std::size_t rank, std::size_t turn) -> const Sample& {
    return samples[(rank * turns + turn) * entries_.size() + c];
  };
  StepRow row{entries_[c].contender};
  std::vector<Sample> slowest(turns);
  for (std::size_t turn = 0; turn < turns; ++turn)
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (const Sample& own = sample_of(rank, turn); own.seconds > slowest[turn].seconds)
        slowest[turn] = own;
  const auto median_of = [&](double Sample::*figure) {
    std::vector<double> values;
    for (const Sample& sample : slowest) values.push_back(sample.*figure);
    return median(values);
  };
  row.step_seconds = median_of(&Sample::seconds);
  row.network_seconds = median_of(&Sample::network);
  row.exposed_seconds = median_of(&Sample::exposed);
  row.needed = row.needs(groups_[0].size());
  row.memory.resize(row.needed.size());
  double bytes = 0;
  const auto mean = [&](double value) { return value / static_cast<double>(ranks); };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Sample& last = sample_of(rank, turns - 1);
    row.calls = static_cast<std::int64_t>(last.calls);
    bytes += mean(last.bytes), row.loss += mean(last.loss);
    for (std::size_t axis = 0; axis < axes; ++axis)
      row.sent_along[static_cast<parallel::Axis>(axis)] += mean(last.along[axis]);
    const int part =
        row.in_mesh() ? row.plan.mesh.shape.coordinate(static_cast<int>(rank), parallel::Axis::pp)
                      : 0;
    StepMemory& most = row.memory[static_cast<std::size_t>(part)];
    for (const auto moment : {&StepMemory::made, &StepMemory::before_update,
                              &StepMemory::after_step, &StepMemory::peak})
      for (std::size_t kind = 0; kind < (most.*moment).size(); ++kind)
        (most.*moment)[kind] = std::max((most.*moment)[kind], (last.memory.*moment)[kind]);
  }
  row.bytes_sent = std::llround(bytes);
  return row;
}

void run_on_step_ranks(const StepOptions& options, const Contenders& contenders, InMemory in_memory,
                       const std::string& advice,
                       const std::function<void(std::span<ProcessGroup>)>& body) {
  require_processes_for(options.device, options.backends, options.ranks.wanted());
  const auto check = [&](int ranks, int ranks_here) {
    MemoryNeed needed;
    for (const StepContender& contender : contenders(ranks))
      for (const MemoryNeed& need : contender.needs(ranks))
        if (in_memory == InMemory::together)
          needed = together(needed, need);
        else if (need.peak > needed.peak)
          needed = need;
    const autograd::Device device = device_from(options.device, autograd::DType::fp32);
    // On a GPU each rank checks its own memory, not the launcher.
    if (device != autograd::Device::cuda || environment("RANK"))
      training::require_memory(needed, ranks_here, options.memory_limit_gb, advice, device);
  };
  const auto run = [&](std::span<ProcessGroup> groups, int ranks_here) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    training::begin_computing(options.threads.value_or(std::max(1, cores / ranks_here)));
    begin_on_device(options.device, groups);
    body(groups);
    for (ProcessGroup& group : groups) group.finish();
  };
  collectives::load_algorithms();
  run_on_ranks(options.ranks, options.backends, run, check);
}

void bench_steps(
    const StepOptions& options, const Contenders& contenders, InMemory in_memory,
    const std::string& advice,
    const std::function<CommandResult(const BenchRun&, const std::vector<StepRow>&)>& show) {
  const auto body = [&](std::span<ProcessGroup> groups) {
    std::vector<StepRow> rows;
    std::vector<StepContender> all = contenders(groups[0].size());
    if (in_memory == InMemory::together) rows = StepBench(groups, all).measure(options.steps);
    if (in_memory == InMemory::one_by_one)
      for (const StepContender& each : all)
        rows.push_back(StepBench(groups, {each}).measure(options.steps)[0]);
    require_equal_losses(rows);
    if (groups[0].rank() != 0) return;
    std::vector<CommandResult> results;
    for (std::size_t g = 0; g < groups.size(); ++g)
      results.push_back(show(describe_run(options, &groups[g]), rows_of_group(rows, g)));
    write_results(results, options.json);
  };
  run_on_step_ranks(options, contenders, in_memory, advice, body);
}

std::vector<StepRow> rows_of_group(const std::vector<StepRow>& rows, std::size_t group) {
  std::vector<StepRow> found;
  for (const StepRow& row : rows)
    if (row.plan.strategy == "single" || row.group == group) found.push_back(row);
  return found;
}

void synchronise(autograd::Device device) {
  if (device != autograd::Device::cpu) autograd::device_memory(device).synchronise();
}

}  // namespace ringside::cli
