// `ringside bench zero`: measures memory, traffic and time of data parallelism and of the stages of
// ZeRO, beside the formulas.
#include <memory>
#include <numeric>
#include <span>
#include <string_view>

#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/tensor/storage.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/bench/training/zero_report.hpp"
#include "cli/command.hpp"
#include "cli/training/product_calibration.hpp"
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

struct Arguments : StrategiesOptions {
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
  void made(std::size_t strategy) {
    const BytesByKind all = current_memory();
    held_.push_back(all - before_);
    figures_.push_back(
        {.moments = {{"made", held_[strategy]}, {"before step", {}}, {"after step", {}}}});
    before_ = all;
  }

  void at(std::size_t strategy, std::string_view moment) {
    MemoryFigures& figures = figures_[strategy];
    if (moment == "begin")
      others_ = current_memory() - held_[strategy], autograd::reset_peak_memory();
    if (moment == "finish gradients") figures.moments[1].bytes = current_memory() - others_;
    if (moment == "optimizer") figures.moments[2].bytes = current_memory() - others_;
    if (moment == "end") {
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
                                    const std::vector<MemoryFigures>& memory,
                                    const ZeroBenchTitle& title, double gathered_once) {
  std::vector<ZeroFigures> figures;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].group != group) continue;
    figures.push_back({rows[i], memory[i],
                       zero_formula(rows[i].strategy, static_cast<double>(title.parameters),
                                    title.ranks, gathered_once)});
    figures.back().ratio = rows[i].step_seconds / figures.front().step_seconds;
  }
  return figures;
}

void bench_as_rank(const Arguments& args, std::span<ProcessGroup> groups, int ranks_here) {
  begin_computing(args.threads_of_a_rank(ranks_here));
  begin_on_device(args.device, groups);
  MemoryWatch watch;
  StrategiesBench strategies(args, groups, names_of(args),
                             [&](std::size_t strategy) { watch.made(strategy); });
  strategies.set_watch(
      [&](std::size_t strategy, const char* moment) { watch.at(strategy, moment); });
  const std::vector<StrategyRow> rows = strategies.measure();
  std::vector<MemoryFigures> memory;
  for (const MemoryFigures& of_this_rank : watch.figures())
    memory.push_back(of_all_ranks(of_this_rank, groups[0]));
  if (groups[0].rank() != 0) return;
  std::FILE* const out = file_beside(args.step.json);
  Json json = Json::array();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ZeroBenchTitle title{
        args.step.model,     groups[g].backend_name(), parameter_count(args.step.config()),
        args.step.batch,     args.step.sequence,       groups[g].size(),
        autograd::threads(), args.step.steps,          args.device.name};
    const auto figures =
        figures_of(g, rows, memory, title, parameters_gathered_once(args.step.config()));
    fmt::print(out, "{}{}", g == 0 ? "" : "\n", zero_table(title, figures));
    for (const Json& row : to_json(title, figures)) json.push_back(row);
  }
  std::fflush(out);
  if (!args.step.json.empty()) write_json_file(args.step.json, json);
}

void run(const Arguments& args) {
  require_processes_for(args.device, args.backends, args.ranks.wanted());
  const auto check = [&](int ranks, int ranks_here) {
    require_memory_for(
        args, names_of(args), ranks, ranks_here,
        "all strategies are in memory together: leave out some with --strategies, or choose a "
        "smaller model");
  };
  run_on_ranks(
      args.ranks, args.backends,
      [&](std::span<ProcessGroup> groups, int ranks_here) {
        bench_as_rank(args, groups, ranks_here);
        for (ProcessGroup& group : groups) group.finish();
      },
      check);
}

}  // namespace

void add_bench_zero_command(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "zero", "Measure memory, traffic and time of data parallelism and of the stages of ZeRO");
  const auto args = std::make_shared<Arguments>();
  args->step.steps = 5;
  args->strategies = {"bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"};
  args->add_to(*command);
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
