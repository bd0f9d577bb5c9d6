// `ringside bench zero`: measures memory, traffic and time of data parallelism and of the stages of
// ZeRO, beside the formulas.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>

#include "autograd/tensor/storage.hpp"
#include "cli/bench/training/step_formula.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/command.hpp"
#include "cli/commands/bench/step_arguments.hpp"
#include "cli/pictures/wrap.hpp"
#include "ddp/bucketed.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;
using collectives::ProcessGroup;
using collectives::ReduceOp;

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

using BytesByKind = std::array<double, autograd::all_memory_kinds.size()>;

double& of(BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

// `figure` is MemoryUse::current or MemoryUse::peak.
BytesByKind memory_by_kind(std::int64_t autograd::MemoryUse::*figure) {
  BytesByKind bytes{};
  for (const auto kind : autograd::all_memory_kinds)
    of(bytes, kind) = static_cast<double>(autograd::memory_use(kind).*figure);
  return bytes;
}

BytesByKind current_memory() {
  return memory_by_kind(&autograd::MemoryUse::current);
}

BytesByKind operator-(BytesByKind a, const BytesByKind& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

// Memory during one step.
struct MemoryFigures {
  BytesByKind made{}, before_step{}, after_step{};
  BytesByKind peak{};  // of each kind, possibly at different moments
  double peak_of_all = 0;
};

// The memory of each strategy on this rank over a step. All strategies are in memory together: what
// the others hold does not change meanwhile and is subtracted.
class MemoryWatch {
 public:
  // Another strategy has been made.
  void made() {
    const BytesByKind all = current_memory();
    held_.push_back(all - before_);
    figures_.push_back({.made = held_.back()});
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
        figures.before_step = current_memory() - others_;
        break;
      case StepBench::Moment::updated:
        figures.after_step = current_memory() - others_;
        break;
      case StepBench::Moment::end:
        held_[strategy] = current_memory() - others_;
        figures.peak = memory_by_kind(&autograd::MemoryUse::peak) - others_;
        figures.peak_of_all = static_cast<double>(autograd::memory_use().peak) -
                              std::accumulate(others_.begin(), others_.end(), 0.0);
    }
  }

  // Of the last step of each strategy, the maximum over all ranks.
  std::vector<MemoryFigures> of_all_ranks(ProcessGroup& group) {
    for (MemoryFigures& f : figures_) {
      for (BytesByKind* bytes : {&f.made, &f.before_step, &f.after_step, &f.peak})
        group.all_reduce(std::span(*bytes), ReduceOp::max);
      f.peak_of_all = over_ranks(f.peak_of_all, ReduceOp::max, group);
    }
    return figures_;
  }

 private:
  std::vector<MemoryFigures> figures_;
  std::vector<BytesByKind> held_;  // by strategy, between its steps
  BytesByKind before_ = current_memory(), others_{};
};

// What a rank holds at each moment; first by the formula, where only people see it.
Table moments_of(const StrategyRow& row, MemoryFigures memory, const StepFormula& formula) {
  const Show mb = fixed(2, 1e-6);
  Table table{
      {words("strategy", "", 15), words("moment", "moment"),
       number("para-\nmeters", "parameters_bytes", mb), number("gradients", "gradients_bytes", mb),
       number("optimizer\nstate", "optimizer_state_bytes", mb), number("together", "", mb),
       number("acti-\nvations", "activations_bytes", mb), only_in_json("communication_bytes")}};
  const auto add = [&](const char* moment, BytesByKind& bytes, double together) {
    table.rows.push_back({"", moment, of(bytes, MemoryKind::parameters),
                          of(bytes, MemoryKind::gradients), of(bytes, MemoryKind::optimizer_state),
                          together, of(bytes, MemoryKind::activations),
                          of(bytes, MemoryKind::communication)});
  };
  const planning::RankMemory& held = formula.memory[0];
  table.rows.push_back({row.strategy, "by formula", bytes_of(held, "parameters"),
                        bytes_of(held, "gradients"), bytes_of(held, "optimizer state"),
                        formula.held(), Cell(), Cell()});
  for (const auto& [moment, bytes] : {std::pair("made", &memory.made),
                                      {"before step", &memory.before_step},
                                      {"after step", &memory.after_step}})
    add(moment, *bytes,
        of(*bytes, MemoryKind::parameters) + of(*bytes, MemoryKind::gradients) +
            of(*bytes, MemoryKind::optimizer_state));
  add("peak", memory.peak, memory.peak_of_all);
  return table;
}

// By the formulas of planning/. zero1_broadcast has an all-reduce, and then a broadcast of each
// parameter by its owner.
StepFormula formula_of(const Arguments& args, const std::string& strategy, int ranks,
                       autograd::Device device) {
  StepFormula formula =
      step_formula(planning::model_from(args.config(), args.model),
                   plan_of_strategy(args, {strategy, args.bucket_mb}, ranks, device));
  if (strategy == "zero1_broadcast") formula.dp *= 1.5;
  return formula;
}

// The figures of one backend. Times are compared with its first strategy.
BenchResult result_of(const Arguments& args, std::size_t group, const BenchRun& run,
                      const std::vector<StrategyRow>& rows,
                      const std::vector<MemoryFigures>& memory, autograd::Device device) {
  const auto of_group = [&](const StrategyRow& row) { return row.group == group; };
  const StrategyRow& first = *std::find_if(rows.begin(), rows.end(), of_group);
  Table steps{{words("strategy", "strategy", 15), number("step (ms)", "step_ms", fixed(1)),
               number("to " + first.strategy, "", fixed(2)),
               number("exposed (ms)", "communication_ms", fixed(1)),
               number("sent (MB)", "bytes_sent", fixed(2, 1e-6)),
               in_brackets("formula_bytes_sent", fixed(2, 1e-6)),
               number("sent", "", fixed(2, 0.25 / static_cast<double>(run.parameters), " n")),
               only_in_json("formula_parameters_bytes"), only_in_json("formula_gradients_bytes"),
               only_in_json("formula_optimizer_state_bytes"), only_in_json("peak_bytes")}};
  Table all_moments;
  std::vector<Json> moments;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!of_group(rows[i])) continue;
    const StepFormula formula = formula_of(args, rows[i].strategy, run.ranks, device);
    const planning::RankMemory& held = formula.memory[0];
    steps.rows.push_back({rows[i].strategy, rows[i].step_seconds * 1e3,
                          rows[i].step_seconds / first.step_seconds, rows[i].exposed_seconds * 1e3,
                          rows[i].bytes_sent, formula.dp, rows[i].bytes_sent,
                          bytes_of(held, "parameters"), bytes_of(held, "gradients"),
                          bytes_of(held, "optimizer state"), memory[i].peak_of_all});
    const Table table = moments_of(rows[i], memory[i], formula);
    all_moments.head = table.head;
    all_moments.rows.insert(all_moments.rows.end(), table.rows.begin(), table.rows.end());
    moments.push_back(table.json());
  }
  Json figures = steps.json(run.facts());
  for (std::size_t i = 0; i < figures.size(); ++i) {
    figures[i]["peak"] = moments[i].back();
    figures[i]["moments"] = Json(moments[i].begin() + 1, moments[i].end() - 1);
  }
  return {
      fmt::format("{}\nmemory of a rank in MB\n{}one step (median of the slowest rank), and the "
                  "bytes that a rank sends in it (in\nbrackets: by formula)\n{}n: the bytes of "
                  "all parameters\n",
                  wrap(run.title(), 80), all_moments.text(), steps.text()),
      figures};
}

void bench_as_rank(const Arguments& args, std::span<ProcessGroup> groups) {
  const std::vector<StrategyName> names = names_of(args);
  const autograd::Device device = device_from(args.device, autograd::DType::fp32);
  StepBench bench(groups[0], args.config(), autograd::DType::fp32, device);
  MemoryWatch watch;
  add_strategies(bench, args, groups, names, [&] { watch.made(); });
  bench.set_watch(
      [&](std::size_t strategy, StepBench::Moment moment) { watch.at(strategy, moment); });
  const std::vector<StrategyRow> rows = measure_strategies(bench, args.steps, names);
  const std::vector<MemoryFigures> memory = watch.of_all_ranks(groups[0]);
  if (groups[0].rank() != 0) return;
  std::vector<BenchResult> results;
  for (std::size_t g = 0; g < groups.size(); ++g)
    results.push_back(
        result_of(args, g, describe_run(args, args.device.name, &groups[g]), rows, memory, device));
  write_results(results, args.json);
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
  const Command<Arguments> option(
      bench, "zero",
      "Measure memory, traffic and time of data parallelism and of the stages of ZeRO", run);
  Arguments& args = *option.args;
  args.steps = 5;
  add_strategies_options(option, args, args.strategies);
  option("--bucket-mb MB", args.bucket_mb, "Bucket size in 10^6 bytes; zero3 has units instead",
         positive())
      ->capture_default_str();
}

}  // namespace ringside::cli
