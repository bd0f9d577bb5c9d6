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

namespace {

// A line of the memory table: one number for each kind that a formula covers, their sum,
// activations.
std::string memory_line(const std::string& strategy, const std::string& moment,
                        const ZeroFormula& bytes, double together, double activations) {
  std::string text = fmt::format("  {:<16}{:<12}", strategy, moment);
  for (const double each :
       {bytes.parameters, bytes.gradients, bytes.optimizer_state, together, activations})
    text += each < 0 ? fmt::format("{:>10}", "") : fmt::format("{:>10.2f}", each * 1e-6);
  return text + "\n";
}

ZeroFormula kinds_with_formula(const BytesByKind& bytes) {
  return {of(bytes, MemoryKind::parameters), of(bytes, MemoryKind::gradients),
          of(bytes, MemoryKind::optimizer_state), 0};
}

std::string memory_table(const std::vector<ZeroFigures>& all) {
  constexpr const char* head = "  {:<16}{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}\n";
  std::string text = "memory of a rank in MB\n";
  text += fmt::format(head, "strategy", "moment", "para-", "gradients", "optimizer", "together",
                      "acti-");
  text += fmt::format(head, "", "", "meters", "", "state", "", "vations");
  constexpr double none = -1;
  for (const ZeroFigures& f : all) {
    text += memory_line(f.strategy, "by formula", f.formula, held(f.formula), none);
    for (const MemoryMoment& moment : f.memory.moments)
      text += memory_line("", moment.name, kinds_with_formula(moment.bytes), held(moment.bytes),
                          of(moment.bytes, MemoryKind::activations));
    text += memory_line("", "peak", kinds_with_formula(f.memory.peak), f.memory.peak_of_all,
                        of(f.memory.peak, MemoryKind::activations));
  }
  return text;
}

}  // namespace

std::string zero_table(const ZeroBenchTitle& t, const std::vector<ZeroFigures>& all) {
  std::string text = fmt::format("{}: {} parameters on {} over {};\n", t.model,
                                 with_unit(static_cast<double>(t.parameters)),
                                 counted(t.ranks, "rank"), t.backend);
  text += fmt::format("batch {} x {} each, fp32, AdamW, {} each{}\n", t.batch, t.sequence,
                      counted(t.threads, "thread"), on_device_text(t.device));
  text += memory_table(all);
  text +=
      "one step (median of the slowest rank), and the bytes that a rank sends in it (in\n"
      "brackets: by formula)\n";
  constexpr const char* line = "  {:<16}{:>10}{:>13}{:>14}{:>16}{:>9}\n";
  text +=
      fmt::format(line, "strategy", "step (ms)", all.empty() ? "" : "to " + all.front().strategy,
                  "exposed (ms)", "sent (MB)", "sent");
  for (const ZeroFigures& f : all)
    text +=
        fmt::format(line, f.strategy, fmt::format("{:.1f}", f.step_seconds * 1e3),
                    fmt::format("{:.2f}", f.ratio), fmt::format("{:.1f}", f.exposed_seconds * 1e3),
                    beside(static_cast<double>(f.bytes_sent), f.formula.sent),
                    fmt::format("{:.2f} n", static_cast<double>(f.bytes_sent) /
                                                (4 * static_cast<double>(t.parameters))));
  return text + "n: the bytes of all parameters\n";
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
             {"device", t.device},
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
