#include "cli/bench/training/zero_report.hpp"

#include "base/error.hpp"
#include "cli/report/numbers.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;

double of(const BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

// The kinds of memory that the formulas cover.
double held(const BytesByKind& bytes) {
  return of(bytes, MemoryKind::parameters) + of(bytes, MemoryKind::gradients) +
         of(bytes, MemoryKind::optimizer_state);
}

double held(const ZeroFormula& formula) {
  return formula.parameters + formula.gradients + formula.optimizer_state;
}

std::string beside(double bytes, double formula) {
  return fmt::format("{:.2f} ({:.2f})", bytes * 1e-6, formula * 1e-6);
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

std::string zero_table(const ZeroBenchTitle& t, const std::vector<ZeroFigures>& all) {
  std::string text =
      fmt::format("{}: {} parameters on {} over {}; batch {} x {} each, fp32, AdamW, {} each\n",
                  t.model, with_unit(static_cast<double>(t.parameters)), counted(t.ranks, "rank"),
                  t.backend, t.batch, t.sequence, counted(t.threads, "thread"));
  text += "memory of a rank in MB (in brackets: by the formula)\n";
  text += fmt::format("  {:<17}{:<13}{:>19}{:>19}{:>19}{:>19}{:>13}\n", "strategy", "moment",
                      "parameters", "gradients", "optimizer state", "together", "activations");
  for (const ZeroFigures& f : all) {
    for (const MemoryMoment& moment : f.memory.moments)
      text += fmt::format(
          "  {:<17}{:<13}{:>19}{:>19}{:>19}{:>19}{:>13.2f}\n",
          &moment == &f.memory.moments.front() ? f.strategy : "", moment.name,
          beside(of(moment.bytes, MemoryKind::parameters), f.formula.parameters),
          beside(of(moment.bytes, MemoryKind::gradients), f.formula.gradients),
          beside(of(moment.bytes, MemoryKind::optimizer_state), f.formula.optimizer_state),
          beside(held(moment.bytes), held(f.formula)),
          of(moment.bytes, MemoryKind::activations) * 1e-6);
    text +=
        fmt::format("  {:<17}{:<13}{:>10.2f}{:>19.2f}{:>19.2f}{:>19.2f}{:>22.2f}\n", "", "peak",
                    of(f.memory.peak, MemoryKind::parameters) * 1e-6,
                    of(f.memory.peak, MemoryKind::gradients) * 1e-6,
                    of(f.memory.peak, MemoryKind::optimizer_state) * 1e-6,
                    f.memory.peak_of_all * 1e-6, of(f.memory.peak, MemoryKind::activations) * 1e-6);
  }
  text += "one step (median of the slowest rank), and the bytes that a rank sends in it\n";
  text += fmt::format("  {:<17}{:>11}{:>14}{:>20}{:>21}{:>14}\n", "strategy", "step (ms)",
                      all.empty() ? "" : "to " + all.front().strategy, "communication (ms)",
                      "sent (MB)", "of n bytes");
  for (const ZeroFigures& f : all)
    text += fmt::format("  {:<17}{:>11.1f}{:>14.2f}{:>20.1f}{:>21}{:>14}\n", f.strategy,
                        f.step_seconds * 1e3, f.ratio, f.exposed_seconds * 1e3,
                        beside(static_cast<double>(f.bytes_sent), f.formula.sent),
                        fmt::format("{:.2f} n", static_cast<double>(f.bytes_sent) /
                                                    (4 * static_cast<double>(t.parameters))));
  return text;
}

Json to_json(const ZeroBenchTitle& t, const std::vector<ZeroFigures>& all) {
  Json rows = Json::array();
  for (const ZeroFigures& f : all) {
    Json row{{"strategy", f.strategy},
             {"model", t.model},
             {"parameters", t.parameters},
             {"ranks", t.ranks},
             {"backend", t.backend},
             {"batch", t.batch},
             {"sequence", t.sequence},
             {"threads", t.threads},
             {"type", "fp32"},
             {"step_ms", f.step_seconds * 1e3},
             {"communication_ms", f.exposed_seconds * 1e3},
             {"bytes_sent", f.bytes_sent},
             {"formula_bytes_sent", f.formula.sent},
             {"formula_parameters_bytes", f.formula.parameters},
             {"formula_gradients_bytes", f.formula.gradients},
             {"formula_optimizer_state_bytes", f.formula.optimizer_state},
             {"peak_bytes", f.memory.peak_of_all},
             {"peak", kinds_of(f.memory.peak)}};
    for (const MemoryMoment& moment : f.memory.moments) {
      Json entry{{"moment", moment.name}};
      entry.update(kinds_of(moment.bytes));
      row["moments"].push_back(std::move(entry));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ringside::cli
