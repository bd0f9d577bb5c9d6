#include "cli/bench/training/zero_report.hpp"

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;

double of(const BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

std::string key_of(MemoryKind kind) {
  std::string key = autograd::name_of(kind);
  for (char& letter : key)
    if (letter == ' ') letter = '_';
  return key + "_bytes";
}

Json kinds_of(const BytesByKind& bytes) {
  Json json;
  for (const MemoryKind kind : autograd::all_memory_kinds) json[key_of(kind)] = of(bytes, kind);
  return json;
}

}  // namespace

double parameters_gathered_once(const transformer::Config& config) {
  return config.tied_head ? 0 : static_cast<double>((2 * config.vocabulary + 1) * config.d_model);
}

ZeroFormula zero_formula(const std::string& strategy, double parameters, int ranks,
                         double gathered_once) {
  const double n = 4 * parameters, p = ranks, hop = (p - 1) / p * n;
  ZeroFormula formula{n, n, 2 * n, 2 * hop};  // data parallel
  if (strategy == "bucketed") return formula;
  require(strategy.starts_with("zero"), "there is no formula for the strategy '{}'", strategy);
  formula.optimizer_state /= p;
  if (strategy == "zero1_broadcast")
    formula.sent = 3 * hop;  // an all-reduce, and a broadcast of each parameter by its owner
  if (strategy == "zero1" || strategy == "zero1_broadcast") return formula;
  formula.gradients /= p;
  if (strategy == "zero2") return formula;
  formula.parameters /= p;
  formula.sent = 3 * hop - (p - 1) / p * 4 * gathered_once;
  return formula;
}

namespace {

// What a rank holds, at each moment and by the formula.
std::string memory_text(const std::vector<ZeroFigures>& all) {
  const Show mb = fixed(2, 1e-6);
  Table table{{words("strategy", "", 15), words("moment"), number("para-\nmeters", "", mb),
               number("gradients", "", mb), number("optimizer\nstate", "", mb),
               number("together", "", mb), number("acti-\nvations", "", mb)}};
  for (const ZeroFigures& f : all) {
    table.rows.push_back({f.strategy, "by formula", f.formula.parameters, f.formula.gradients,
                          f.formula.optimizer_state, f.formula.held(), Cell()});
    const auto add = [&](const std::string& moment, const BytesByKind& bytes, double together) {
      table.rows.push_back(
          {"", moment, of(bytes, MemoryKind::parameters), of(bytes, MemoryKind::gradients),
           of(bytes, MemoryKind::optimizer_state), together, of(bytes, MemoryKind::activations)});
    };
    for (const MemoryMoment& moment : f.memory.moments)
      add(moment.name, moment.bytes,
          of(moment.bytes, MemoryKind::parameters) + of(moment.bytes, MemoryKind::gradients) +
              of(moment.bytes, MemoryKind::optimizer_state));
    add("peak", f.memory.peak, f.memory.peak_of_all);
  }
  return table.text();
}

Table steps_of(const BenchRun& run, const std::vector<ZeroFigures>& all) {
  Table table{{words("strategy", "strategy", 15), number("step (ms)", "step_ms", fixed(1)),
               number(all.empty() ? "" : "to " + all.front().strategy, "", fixed(2)),
               number("exposed (ms)", "communication_ms", fixed(1)),
               number("sent (MB)", "bytes_sent", fixed(2, 1e-6)),
               in_brackets("formula_bytes_sent", fixed(2, 1e-6)),
               number("sent", "", fixed(2, 0.25 / static_cast<double>(run.parameters), " n")),
               only_in_json("formula_parameters_bytes"), only_in_json("formula_gradients_bytes"),
               only_in_json("formula_optimizer_state_bytes"), only_in_json("peak_bytes")}};
  for (const ZeroFigures& f : all)
    table.rows.push_back({f.strategy, f.step_seconds * 1e3, f.ratio, f.exposed_seconds * 1e3,
                          f.bytes_sent, f.formula.sent, f.bytes_sent, f.formula.parameters,
                          f.formula.gradients, f.formula.optimizer_state, f.memory.peak_of_all});
  return table;
}

}  // namespace

std::string zero_table(const BenchRun& run, const std::vector<ZeroFigures>& all) {
  return fmt::format(
      "{}: {} on {} over {};\nbatch {} x {} each, fp32, AdamW, {}\nmemory of a rank in MB\n{}"
      "one step (median of the slowest rank), and the bytes that a rank sends in it (in\n"
      "brackets: by formula)\n{}n: the bytes of all parameters\n",
      run.model, run.parameters_text(), counted(run.ranks, "rank"), run.backend, run.batch,
      run.sequence, run.threads_text(), memory_text(all), steps_of(run, all).text());
}

Json to_json(const BenchRun& run, const std::vector<ZeroFigures>& all) {
  Json rows = steps_of(run, all).json(run.facts({"model", "parameters", "ranks", "backend", "batch",
                                                 "sequence", "threads", "type", "device"}));
  for (std::size_t i = 0; i < all.size(); ++i) {
    rows[i]["peak"] = kinds_of(all[i].memory.peak);
    for (const MemoryMoment& moment : all[i].memory.moments) {
      Json entry{{"moment", moment.name}};
      entry.update(kinds_of(moment.bytes));
      rows[i]["moments"].push_back(std::move(entry));
    }
  }
  return rows;
}

}  // namespace ringside::cli
