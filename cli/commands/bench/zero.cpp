// `ringside bench zero`: what data parallel and the stages of ZeRO hold, send, and take, beside the
// formulas.
#include <memory>
#include <numeric>
#include <span>
#include <string_view>

#include "autograd/kernels/parallel.hpp"
#include "autograd/tensor/storage.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/bench/training/zero_report.hpp"
#include "cli/command.hpp"
#include "ddp/bucketed.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using collectives::ReduceOp;

constexpr const char* more =
    "\nn is the bytes of all parameters, p the number of ranks; AdamW keeps 2 n. A rank holds and "
    "sends\n"
    "  form              parameters   gradients   optimizer state   sent in a step\n"
    "  bucketed          n            n           2 n               2 (p-1)/p n     data parallel\n"
    "  zero1_broadcast   n            n           2 n / p           3 (p-1)/p n     an owner for "
    "each parameter\n"
    "  zero1             n            n           2 n / p           2 (p-1)/p n     "
    "reduce-scatter, step, all-gather\n"
    "  zero2             n            n / p       2 n / p           2 (p-1)/p n\n"
    "  zero3             n / p        n / p       2 n / p           3 (p-1)/p n     FSDP; of "
    "embedding, norm and head 2 (p-1)/p\n"
    "The forms take turns step by step, because a machine drifts; the first is the one that times "
    "are held against.\n"
    "Memory is counted where it is allocated, by kind, and told of the rank that holds most; "
    "`peak` is the most that was ever held "
    "of a kind\n"
    "during a step, and, under `together`, of all kinds at one moment.\n"
    "\n"
    "Examples:\n"
    "  ringside bench zero -n 2 --model lab                      five forms over shared memory\n"
    "  ringside bench zero -n 4 --model tiny --backend tcp --json zero.json\n";

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

BytesByKind now() {
  BytesByKind bytes{};
  for (const auto kind : autograd::all_memory_kinds)
    bytes[static_cast<std::size_t>(kind)] = static_cast<double>(autograd::memory_use(kind).current);
  return bytes;
}

BytesByKind peaks() {
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

// What each form holds on this rank, and when. The forms stand side by side in one memory: what the
// others hold meanwhile does not change, and is subtracted.
class MemoryWatch {
 public:
  void made(std::size_t strategy) {
    const BytesByKind all = now();
    held_.push_back(all - before_);
    figures_.push_back(
        {.moments = {{"made", held_[strategy]}, {"before step", {}}, {"after step", {}}}});
    before_ = all;
  }

  void at(std::size_t strategy, std::string_view moment) {
    MemoryFigures& figures = figures_[strategy];
    if (moment == "begin") others_ = now() - held_[strategy], autograd::reset_peak_memory();
    if (moment == "finish gradients") figures.moments[1].bytes = now() - others_;
    if (moment == "optimizer") figures.moments[2].bytes = now() - others_;
    if (moment == "end") {
      held_[strategy] = now() - others_;
      figures.peak = peaks() - others_;
      figures.peak_of_all = static_cast<double>(autograd::memory_use().peak) - sum(others_);
    }
  }

  // Of the last step of each form.
  const std::vector<MemoryFigures>& figures() const { return figures_; }

 private:
  std::vector<MemoryFigures> figures_;
  std::vector<BytesByKind> held_;  // [form]: between its steps
  BytesByKind before_ = now(), others_{};
};

// The most of all ranks.
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

// Those of one backend, held against the first of them.
std::vector<ZeroFigures> figures_of(std::size_t group, const std::vector<FormRow>& rows,
                                    const std::vector<MemoryFigures>& memory,
                                    const ZeroBenchTitle& title, double at_the_ends) {
  std::vector<ZeroFigures> figures;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].group != group) continue;
    figures.push_back({rows[i], memory[i],
                       zero_formula(rows[i].strategy, static_cast<double>(title.parameters),
                                    title.ranks, at_the_ends)});
    figures.back().ratio = rows[i].step_seconds / figures.front().step_seconds;
  }
  return figures;
}

void bench_as_rank(const Arguments& args, std::span<ProcessGroup> groups, int ranks_here) {
  autograd::set_threads(args.threads_of_a_rank(ranks_here));
  MemoryWatch watch;
  StrategiesBench strategies(args, groups, names_of(args),
                             [&](std::size_t strategy) { watch.made(strategy); });
  strategies.set_watch(
      [&](std::size_t strategy, const char* moment) { watch.at(strategy, moment); });
  const std::vector<FormRow> rows = strategies.measure();
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
        autograd::threads(), args.step.steps};
    const auto figures =
        figures_of(g, rows, memory, title, parameters_at_the_ends(args.step.config()));
    fmt::print(out, "{}{}", g == 0 ? "" : "\n", zero_table(title, figures));
    for (const Json& row : to_json(title, figures)) json.push_back(row);
  }
  std::fflush(out);
  if (!args.step.json.empty()) write_json_file(args.step.json, json);
}

void run(const Arguments& args) {
  const auto check = [&](int ranks, int ranks_here) {
    require_memory_for(
        args, names_of(args), ranks, ranks_here,
        "the forms stand side by side: leave out some with --forms, or take a smaller model");
  };
  run_on_ranks(
      args.ranks, args.backends,
      [&](std::span<ProcessGroup> groups, int ranks_here) {
        bench_as_rank(args, groups, ranks_here);
      },
      check);
}

}  // namespace

void add_bench_zero_command(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "zero", "Measure what data parallel and the stages of ZeRO hold, send and take");
  const auto args = std::make_shared<Arguments>();
  args->step.steps = 5;
  args->strategies = {"bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"};
  args->add_to(*command);
  command
      ->add_option("--bucket-mb", args->bucket_mb,
                   "The most that travels in one call, in 10^6 bytes; zero3 has units instead")
      ->type_name("MB")
      ->check(CLI::PositiveNumber.description(""))
      ->capture_default_str();
  command->footer(more);
  command->callback([args] { run(*args); });
}

}  // namespace ringside::cli
