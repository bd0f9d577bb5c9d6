#include "cli/bench/training/mesh_report.hpp"

#include <fmt/format.h>

#include "cli/bench/training/zero_report.hpp"
#include "cli/report/numbers.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::cli {

using parallel::Axis;
using transformer::Config;
using transformer::ParameterEntry;
using transformer::ParameterTable;

namespace {

constexpr double bytes_of_fp32 = 4;

std::string beside(double bytes, double formula) {
  return fmt::format("{:.1f} ({:.1f})", bytes * 1e-6, formula * 1e-6);
}

// Of the sequence-parallel norms: their gradients are added up once a step.
double norm_bytes(const Config& config) {
  double elements = 0;
  for (const ParameterTable table(config); const ParameterEntry& entry : table.entries())
    if (entry.is_norm()) elements += static_cast<double>(autograd::elements_of(entry.shape));
  return elements * bytes_of_fp32;
}

}  // namespace

MeshBytes mesh_formula(const MeshPlan& plan, const Config& config, const std::string& inner,
                       std::int64_t batch, std::int64_t sequence) {
  const int t = plan.shape.size(Axis::tp), p = plan.data_ranks();
  // The parameters of a rank, on average, and those that zero3 gathers only once.
  double held = 0, once = 0;
  const ParameterTable table(config);
  for (const ParameterEntry& entry : table.entries())
    for (int rank = 0; rank < t; ++rank) {
      const double elements = static_cast<double>(entry.region(rank, t).elements()) / t;
      held += elements;
      if (entry.layer < 0 && !config.tied_head) once += elements;
    }
  const ZeroFormula data = zero_formula(inner, held, p, once);

  // Two sums in forward and two in backward for each layer, one for the embedding and one for the
  // head's input; three numbers a token for the loss.
  const double tokens = static_cast<double>(batch * sequence) / p,
               d = static_cast<double>(config.d_model), layers = static_cast<double>(config.layers),
               hop = static_cast<double>(t - 1) / t;
  double tensor = hop * tokens * bytes_of_fp32 * (8 * layers * d + 2 * d + 2 * d + 2 * 3);
  if (plan.sequence_parallel) tensor += 2 * hop * norm_bytes(config);
  return {tensor, data.sent, data.parameters + data.gradients + data.optimizer_state};
}

std::string mesh_table(const MeshBenchTitle& t, const std::vector<MeshFigures>& all) {
  std::string text = fmt::format(
      "{}: {} parameters on {} over {}; {} sequences of {} a step,\n{} along dp, fp32, AdamW, {} "
      "each\n",
      t.model, with_unit(static_cast<double>(t.parameters)), counted(t.ranks, "rank"), t.backend,
      t.batch, t.sequence, t.inner, counted(t.threads, "thread"));
  text += "MB of a rank (in brackets: by the formula): sent along an axis in a step; held\n";
  text += "in parameters, gradients and optimizer state; the peak of activations\n";
  text += fmt::format("  {:<11}{:>9}{:>15}{:>15}{:>15}{:>13}\n", "mesh", "step (ms)", "tp", "dp",
                      "held", "activations");
  for (const MeshFigures& f : all)
    text += fmt::format("  {:<11}{:>9.1f}{:>15}{:>15}{:>15}{:>13.1f}\n", f.plan.shape.text(),
                        f.step_seconds * 1e3, beside(f.bytes.tp, f.formula.tp),
                        beside(f.bytes.dp, f.formula.dp), beside(f.bytes.held, f.formula.held),
                        f.activations * 1e-6);
  return text;
}

Json to_json(const MeshBenchTitle& t, const std::vector<MeshFigures>& all) {
  Json rows = Json::array();
  for (const MeshFigures& f : all)
    rows.push_back({{"mesh", f.plan.shape.text()},
                    {"sequence_parallel", f.plan.sequence_parallel},
                    {"strategy", t.inner},
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
                    {"tp_bytes_sent", f.bytes.tp},
                    {"formula_tp_bytes_sent", f.formula.tp},
                    {"dp_bytes_sent", f.bytes.dp},
                    {"formula_dp_bytes_sent", f.formula.dp},
                    {"held_bytes", f.bytes.held},
                    {"formula_held_bytes", f.formula.held},
                    {"peak_activations_bytes", f.activations}});
  return rows;
}

}  // namespace ringside::cli
