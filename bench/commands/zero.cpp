// `ringside bench zero`: measures memory, traffic and time of data parallelism and of the stages of
// ZeRO, beside the formulas.
#include <algorithm>
#include <memory>
#include <span>

#include "autograd/tensor/storage.hpp"
#include "bench/commands/step_arguments.hpp"
#include "bench/training/strategies.hpp"
#include "cli/options/command.hpp"
#include "cli/pictures/wrap.hpp"
#include "ddp/bucketed.hpp"
#include "planning/simulation/step_formula.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;
using collectives::ProcessGroup;
using collectives::ReduceOp;

struct ZeroArguments : StepArguments {
  std::vector<std::string> strategies{"bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"};
  double bucket_mb = ddp::Bucketed::default_bucket_mb;
};

std::vector<StrategyName> names_of(const ZeroArguments& args) {
  std::vector<StrategyName> names;
  for (std::size_t backend = 0; backend < args.backends.size(); ++backend)
    for (const auto& strategy : args.strategies)
      names.push_back(
          {strategy, strategy == "zero3" ? std::nullopt : std::optional(args.bucket_mb), backend});
  return names;
}

// Of the last step of each strategy, the maximum over all ranks.
std::vector<StepMemory> memory_of_all_ranks(const StepBench& bench, std::size_t strategies,
                                            ProcessGroup& group) {
  std::vector<StepMemory> all;
  for (std::size_t i = 0; i < strategies; ++i) {
    StepMemory& memory = all.emplace_back(bench.memory(i));
    for (BytesByKind* bytes :
         {&memory.made, &memory.before_update, &memory.after_update, &memory.peak})
      group.all_reduce(std::span(*bytes), ReduceOp::max);
    memory.peak_of_all = over_ranks(memory.peak_of_all, ReduceOp::max, group);
  }
  return all;
}

// What a rank holds at each moment; first by the formula, where only people see it.
Table moments_of(const StrategyRow& row, const StepMemory& memory,
                 const planning::StepFormula& formula) {
  const Show mb = fixed(2, 1e-6);
  Table table{
      {words("strategy", "", 15), words("moment", "moment"),
       number("para-\nmeters", "parameters_bytes", mb), number("gradients", "gradients_bytes", mb),
       number("optimizer\nstate", "optimizer_state_bytes", mb), number("together", "", mb),
       number("acti-\nvations", "activations_bytes", mb), only_in_json("communication_bytes")}};
  const auto add = [&](const char* moment, const BytesByKind& bytes, double together) {
    table.rows.push_back({"", moment, of(bytes, MemoryKind::parameters),
                          of(bytes, MemoryKind::gradients), of(bytes, MemoryKind::optimizer_state),
                          together, of(bytes, MemoryKind::activations),
                          of(bytes, MemoryKind::communication)});
  };
  const planning::RankMemory& whole = formula.memory[0];
  table.rows.push_back({row.strategy, "by formula", bytes_of(whole, "parameters"),
                        bytes_of(whole, "gradients"), bytes_of(whole, "optimizer state"),
                        formula.held(), Cell(), Cell()});
  add("made", memory.made, held(memory.made));
  add("before step", memory.before_update, held(memory.before_update));
  add("after step", memory.after_update, held(memory.after_update));
  add("peak", memory.peak, memory.peak_of_all);
  return table;
}

// By the formulas of planning/. zero1_broadcast has an all-reduce, and then a broadcast of each
// parameter by its owner.
planning::StepFormula formula_of(const ZeroArguments& args, const std::string& strategy, int ranks,
                                 autograd::Device device) {
  planning::StepFormula formula =
      planning::step_formula(planning::model_from(args.config(), args.model),
                             plan_of_strategy(args, {strategy, args.bucket_mb}, ranks, device));
  if (strategy == "zero1_broadcast") formula.sent[parallel::Axis::dp] *= 1.5;
  return formula;
}

// The figures of one backend. Times are compared with its first strategy.
BenchResult result_of(const ZeroArguments& args, std::size_t group, const BenchRun& run,
                      const std::vector<StrategyRow>& rows, const std::vector<StepMemory>& memory,
                      autograd::Device device) {
  const auto of_group = [&](const StrategyRow& row) { return row.group == group; };
  const StrategyRow& first = *std::ranges::find_if(rows, of_group);
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
    const planning::StepFormula formula = formula_of(args, rows[i].strategy, run.ranks, device);
    const planning::RankMemory& held = formula.memory[0];
    steps.rows.push_back(
        {rows[i].strategy, rows[i].step_seconds * 1e3, rows[i].step_seconds / first.step_seconds,
         rows[i].exposed_seconds * 1e3, rows[i].bytes_sent, formula.sent.at(parallel::Axis::dp),
         rows[i].bytes_sent, bytes_of(held, "parameters"), bytes_of(held, "gradients"),
         bytes_of(held, "optimizer state"), memory[i].peak_of_all});
    const Table table = moments_of(rows[i], memory[i], formula);
    all_moments.head = table.head;
    all_moments.rows.insert(all_moments.rows.end(), table.rows.begin(), table.rows.end());
    moments.push_back(table.json());
  }
  Json figures = steps.json(run.facts());
  for (std::size_t i = 0; i < figures.size(); ++i) {
    figures[i]["peak"] = moments[i].back();
    figures[i]["moments"] = std::vector<Json>(moments[i].begin() + 1, moments[i].end() - 1);
  }
  return {
      fmt::format("{}\nmemory of a rank in MB\n{}one step (median of the slowest rank), and the "
                  "bytes that a rank sends in it (in\nbrackets: by formula)\n{}n: the bytes of "
                  "all parameters\n",
                  wrap(run.title(), 80), all_moments.text(), steps.text()),
      figures};
}

void bench_as_rank(const ZeroArguments& args, std::span<ProcessGroup> groups) {
  const std::vector<StrategyName> names = names_of(args);
  const autograd::Device device = device_from(args.device, autograd::DType::fp32);
  StepBench bench(groups[0], args.config(), autograd::DType::fp32, device);
  add_strategies(bench, args, groups, names);
  const std::vector<StrategyRow> rows = measure_strategies(bench, args.steps, names);
  const auto memory = memory_of_all_ranks(bench, names.size(), groups[0]);
  if (groups[0].rank() != 0) return;
  std::vector<BenchResult> results;
  for (std::size_t g = 0; g < groups.size(); ++g)
    results.push_back(
        result_of(args, g, describe_run(args, args.device.name, &groups[g]), rows, memory, device));
  write_results(results, args.json);
}

void bench_zero(const ZeroArguments& args) {
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
  const auto [option, args] = add_command(
      bench, "zero",
      "Measure memory, traffic and time of data parallelism and of the stages of ZeRO", bench_zero);
  args.steps = 5;
  add_strategies_options(option, args, args.strategies);
  option("--bucket-mb MB", args.bucket_mb, "Bucket size in 10^6 bytes; zero3 has units instead",
         positive());
}

}  // namespace ringside::cli
