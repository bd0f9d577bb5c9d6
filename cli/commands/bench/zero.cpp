// `ringside bench zero`: measures memory, traffic and time of data parallelism and of the stages of
// ZeRO, beside the formulas.
#include <memory>
#include <numeric>
#include <span>

#include <CLI/CLI.hpp>

#include "autograd/tensor/storage.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/bench/training/zero_report.hpp"
#include "cli/command.hpp"
#include "cli/commands/bench/step_arguments.hpp"
#include "ddp/bucketed.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using collectives::ReduceOp;

constexpr const char* more = R"(
n is the bytes of all parameters, p the number of ranks; AdamW's state has 2 n.
A rank holds and sends:
  strategy          parameters   gradients   optimizer state   sent per step
  bucketed          n            n           2 n               2 (p-1)/p n
  zero1_broadcast   n            n           2 n / p           3 (p-1)/p n
  zero1             n            n           2 n / p           2 (p-1)/p n
  zero2             n            n / p       2 n / p           2 (p-1)/p n
  zero3             n / p        n / p       2 n / p           3 (p-1)/p n
bucketed is data parallelism. zero1_broadcast gives each parameter an owner;
zero1 cuts the flat parameters evenly. zero3 (FSDP) sends embedding, norm and
head only 2 (p-1)/p times.

The strategies take turns step by step, so that changes of the machine affect
all alike. Times are compared with the first strategy. Memory is counted at
allocation, by kind, and shown for the rank that holds most. `peak` is the
maximum of a kind during a step, and, under `together`, of all kinds at one
moment.

Examples:
  ringside bench zero -n 2 --model lab
  ringside bench zero -n 4 --model tiny --backend tcp --json zero.json
  ringside bench zero -n 2 --model lab --device cuda)";

struct Arguments : StepArguments {
  std::vector<std::string> strategies{"bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"};
  double bucket_mb = ddp::Bucketed::default_bucket_mb;
};

std::vector<StrategyName> names_of(const Arguments& args) {
  std::vector<StrategyName> names;
  for (std::size_t backend = 0; backend < args.backends.size(); ++backend)
    for (const auto& strategy : args.strategies)
      names.push_back(
          {strategy, strategy == "zero3" ? std::nullopt : std::optional(args.bucket_mb), backend});
  return names;
}

BytesByKind current_memory() {
  BytesByKind bytes{};
  for (const auto kind : autograd::all_memory_kinds)
    bytes[static_cast<std::size_t>(kind)] = static_cast<double>(autograd::memory_use(kind).current);
  return bytes;
}

BytesByKind peak_memory() {
  BytesByKind bytes{};
  for (const auto kind : autograd::all_memory_kinds)
    bytes[static_cast<std::size_t>(kind)] = static_cast<double>(autograd::memory_use(kind).peak);
  return bytes;
}

BytesByKind operator-(BytesByKind a, const BytesByKind& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

double sum(const BytesByKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

// The memory of each strategy on this rank over a step. All strategies are in memory together: what
// the others hold does not change meanwhile and is subtracted.
class MemoryWatch {
 public:
  // Another strategy has been made.
  void made() {
    const BytesByKind all = current_memory();
    held_.push_back(all - before_);
    figures_.push_back(
        {.moments = {{"made", held_.back()}, {"before step", {}}, {"after step", {}}}});
    before_ = all;
  }

  void at(std::size_t strategy, StepBench::Moment moment) {
    MemoryFigures& figures = figures_[strategy];
    switch (moment) {
      case StepBench::Moment::begin:
        others_ = current_memory() - held_[strategy];
        autograd::reset_peak_memory();
        break;
      case StepBench::Moment::gradients_finished:
        figures.moments[1].bytes = current_memory() - others_;
        break;
      case StepBench::Moment::updated:
        figures.moments[2].bytes = current_memory() - others_;
        break;
      case StepBench::Moment::end:
        held_[strategy] = current_memory() - others_;
        figures.peak = peak_memory() - others_;
        figures.peak_of_all = static_cast<double>(autograd::memory_use().peak) - sum(others_);
    }
  }

  // Of the last step of each strategy.
  const std::vector<MemoryFigures>& figures() const { return figures_; }

 private:
  std::vector<MemoryFigures> figures_;
  std::vector<BytesByKind> held_;  // by strategy, between its steps
  BytesByKind before_ = current_memory(), others_{};
};

// The maximum over all ranks.
MemoryFigures of_all_ranks(MemoryFigures figures, ProcessGroup& group) {
  std::vector<double*> numbers = {&figures.peak_of_all};
  for (auto& bytes : figures.peak) numbers.push_back(&bytes);
  for (auto& moment : figures.moments)
    for (auto& bytes : moment.bytes) numbers.push_back(&bytes);
  std::vector<double> values;
  for (const double* number : numbers) values.push_back(*number);
  group.all_reduce(std::span(values), ReduceOp::max);
  for (std::size_t i = 0; i < numbers.size(); ++i) *numbers[i] = values[i];
  return figures;
}

// The figures of one backend. Times are compared with its first strategy.
std::vector<ZeroFigures> figures_of(std::size_t group, const std::vector<StrategyRow>& rows,
                                    const std::vector<MemoryFigures>& memory, const BenchRun& run,
                                    double gathered_once) {
  std::vector<ZeroFigures> figures;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].group != group) continue;
    figures.push_back({rows[i], memory[i],
                       zero_formula(rows[i].strategy, static_cast<double>(run.parameters),
                                    run.ranks, gathered_once)});
    figures.back().ratio = rows[i].step_seconds / figures.front().step_seconds;
  }
  return figures;
}

void bench_as_rank(const Arguments& args, std::span<ProcessGroup> groups) {
  const std::vector<StrategyName> names = names_of(args);
  StepBench bench(groups[0], args.config(), autograd::DType::fp32,
                  device_from(args.device, autograd::DType::fp32));
  MemoryWatch watch;
  add_strategies(bench, args, groups, names, [&] { watch.made(); });
  bench.set_watch(
      [&](std::size_t strategy, StepBench::Moment moment) { watch.at(strategy, moment); });
  const std::vector<StrategyRow> rows = measure_strategies(bench, args.steps, names);
  std::vector<MemoryFigures> memory;
  for (const MemoryFigures& of_this_rank : watch.figures())
    memory.push_back(of_all_ranks(of_this_rank, groups[0]));
  if (groups[0].rank() != 0) return;
  std::FILE* const out = file_beside(args.json);
  Json json = Json::array();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const BenchRun run = describe_run(args, args.device.name, &groups[g]);
    const auto figures = figures_of(g, rows, memory, run, parameters_gathered_once(args.config()));
    fmt::print(out, "{}{}", g == 0 ? "" : "\n", zero_table(run, figures));
    for (const Json& row : to_json(run, figures)) json.push_back(row);
  }
  std::fflush(out);
  if (!args.json.empty()) write_json_file(args.json, json);
}

void run(const Arguments& args) {
  const auto memory = [&](int ranks, autograd::Device device) {
    return std::vector{memory_of_strategies(args, names_of(args), ranks, device)};
  };
  run_on_step_ranks(
      args, memory,
      "all strategies are in memory together: leave out some with --strategies, or choose a "
      "smaller model",
      [&](std::span<ProcessGroup> groups) { bench_as_rank(args, groups); });
}

}  // namespace

void add_bench_zero_command(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "zero", "Measure memory, traffic and time of data parallelism and of the stages of ZeRO");
  const auto args = std::make_shared<Arguments>();
  args->steps = 5;
  add_strategies_options(*command, *args, args->strategies);
  command
      ->add_option("--bucket-mb", args->bucket_mb,
                   "Bucket size in 10^6 bytes; zero3 has units instead")
      ->type_name("MB")
      ->check(CLI::PositiveNumber.description(""))
      ->capture_default_str();
  command->footer(more);
  command->callback([args] { run(*args); });
}

}  // namespace ringside::cli
