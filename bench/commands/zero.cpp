// `ringside bench zero`: measures memory, traffic and time of data parallelism and of the stages of
// ZeRO.
#include "bench/commands/step_arguments.hpp"
#include "bench/training/step_table.hpp"
#include "cli/options/command.hpp"
#include "cli/pictures/wrap.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;

struct ZeroArguments : StepOptions {
  std::vector<std::string> strategies{"bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"};
  double bucket_mb = training::Plan().bucket_mb;
};

// What a rank holds at each moment.
Table moments_of(const StepRow& row) {
  const Show mb = fixed(2, 1e-6);
  Table table{
      {words("strategy", "", 15), words("moment", "moment"),
       number("para-\nmeters", "parameters_bytes", mb), number("gradients", "gradients_bytes", mb),
       number("optimizer\nstate", "optimizer_state_bytes", mb), number("together", "", mb),
       number("acti-\nvations", "activations_bytes", mb), only_in_json("communication_bytes")}};
  const auto add = [&](const char* moment, const BytesByKind& bytes, double together) {
    table.rows.push_back({row.name, moment, of(bytes, MemoryKind::parameters),
                          of(bytes, MemoryKind::gradients), of(bytes, MemoryKind::optimizer_state),
                          together, of(bytes, MemoryKind::activations),
                          of(bytes, MemoryKind::communication)});
  };
  const StepMemory& memory = row.memory[0];
  const training::MemoryNeed& need = row.needed[0];
  add("made", memory.made, held(memory.made));
  add("before step", memory.before_update, held(memory.before_update));
  add("after step", memory.after_step, held(memory.after_step));
  add("peak", memory.peak, memory.peak.back());
  table.rows.push_back({row.name, "estimated", need.parameters, need.gradients, need.optimizer,
                        need.peak, need.activations, Cell()});
  return table;
}

// The figures of one backend. Times are compared with its first strategy.
CommandResult result_of(const BenchRun& run, const std::vector<StepRow>& rows) {
  const Table steps = step_table(
      "strategy", rows, {"step_ms", "exposed_ms", "bytes_sent", "sent_parameters", "ratio"});
  Table memory;
  Json figures = steps.json(run.facts);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Table table = moments_of(rows[i]);
    memory.head = table.head;
    memory.rows.insert(memory.rows.end(), table.rows.begin(), table.rows.end());
    const Json moments = table.json();
    figures[i]["moments"] = std::vector<Json>(moments.begin(), moments.begin() + 3);
    figures[i]["peak"] = moments[3], figures[i]["estimated"] = moments[4];
  }
  return {
      fmt::format("{}\nmemory of a rank in MB\n{}one step (median of the slowest rank), and what "
                  "a rank sends in it\n{}n: the bytes of all parameters\n",
                  wrap(run.title, 80), memory.text(), steps.text()),
      figures};
}

void bench_zero(const ZeroArguments& args) {
  bench_steps(
      args,
      [&](int ranks) { return strategies_of(args, args.strategies, {args.bucket_mb}, ranks); },
      InMemory::together,
      "all strategies are in memory together: leave out some with --strategies, or choose a "
      "smaller model",
      result_of);
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
