#include "cli/bench/training/mesh_report.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/bench/training/zero_report.hpp"
#include "cli/report/numbers.hpp"
#include "cli/report/wrap.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "ddp/bucketed.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::cli {

using parallel::Axis;
using transformer::Config;
using transformer::ParameterEntry;
using transformer::ParameterTable;
using transformer::TrainerOptions;

namespace {

constexpr double bytes_of_fp32 = 4;
constexpr double default_bucket_mb = ddp::Bucketed::default_bucket_mb;

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

double MeshBytes::mean_held() const {
  double sum = 0;
  for (const MeshMemory& each : memory) sum += each.held;
  return sum / static_cast<double>(memory.size());
}

double MeshBytes::largest_activations() const {
  double largest = 0;
  for (const MeshMemory& each : memory) largest = std::max(largest, each.activations);
  return largest;
}

TrainerOptions options_on(const MeshPlan& plan, std::int64_t batch, std::int64_t sequence) {
  TrainerOptions options;
  options.batch = batch;
  options.sequence = sequence;
  options.accumulate = std::max(1, plan.schedule.micro_batches);
  return options;
}

namespace {

// A layer has two sums in forward and two in backward, the embedding one, the head's input one; the
// loss needs three numbers of each token. Each rank computes its stages' part of that, so the mean
// of the ranks divides by p.
double tensor_bytes(const MeshPlan& plan, const Config& config, double tokens) {
  const int t = plan.shape.size(Axis::tp), p = plan.shape.size(Axis::pp);
  const double d = static_cast<double>(config.d_model), layers = static_cast<double>(config.layers),
               hop = static_cast<double>(t - 1) / t;
  double bytes = hop * tokens * bytes_of_fp32 * (8 * layers * d + 2 * d + 2 * d + 2 * 3);
  if (plan.sequence_parallel) bytes += 2 * hop * norm_bytes(config);
  return bytes / p;
}

// All tokens pass each boundary between stages of different ranks, forward and backward.
double pipeline_bytes(const MeshPlan& plan, const Config& config, double tokens) {
  const auto& rank_of = plan.schedule.rank_of;
  int boundaries = 0;
  for (std::size_t stage = 1; stage < rank_of.size(); ++stage)
    if (rank_of[stage] != rank_of[stage - 1]) ++boundaries;
  const int divisor = plan.sequence_parallel ? plan.shape.size(Axis::tp) : 1;
  return 2 * boundaries * tokens / divisor * static_cast<double>(config.d_model) * bytes_of_fp32 /
         plan.shape.size(Axis::pp);
}

}  // namespace

MeshBytes mesh_formula(const MeshPlan& plan, const Config& config, const std::string& inner,
                       const TrainerOptions& options, autograd::Device device) {
  const int t = plan.shape.size(Axis::tp), p = plan.shape.size(Axis::pp), d = plan.data_ranks();
  const double tokens = static_cast<double>(options.batch * options.sequence) / d;
  MeshBytes bytes{tensor_bytes(plan, config, tokens), 0, pipeline_bytes(plan, config, tokens), {}};
  bytes.memory.resize(static_cast<std::size_t>(p));

  const ParameterTable table(config);
  for (const int rank : plan.shape.model_members(0)) {
    const transformer::ModelPart part = part_of_rank(plan, config, rank);
    // The parameters of this rank, and those that zero3 gathers only once.
    double held = 0, once = 0;
    for (const ParameterEntry& entry : table.entries()) {
      if (!transformer::name_in(part, entry)) continue;
      const double elements = static_cast<double>(entry.region(part.tensor_rank, t).elements());
      held += elements;
      if (entry.layer < 0 && !config.tied_head) once += elements;
    }
    const ZeroFormula data = zero_formula(inner, held, d, once);
    // zero2 reduces gradients after each micro-batch, and zero3 gathers for each, too: at most so
    // often, because a block that is still whole from the action before is not gathered again.
    const double again =
        static_cast<double>(options.accumulate - 1) * (inner == "zero2"   ? 4 * held * (d - 1) / d
                                                       : inner == "zero3" ? data.sent
                                                                          : 0);
    bytes.dp += (data.sent + again) / (t * p);
    MeshMemory& memory =
        bytes.memory[static_cast<std::size_t>(plan.shape.coordinate(rank, Axis::pp))];
    memory.held += (data.parameters + data.gradients + data.optimizer_state) / t;
    transformer::Held held_here = held_by(inner, d, default_bucket_mb);
    held_here.device = device;
    memory.activations = std::max(
        memory.activations,
        memory_on_rank(plan, config, options, autograd::DType::fp32, rank, held_here).activations);
  }
  return bytes;
}

namespace {

// "pipelines: 1f1b; 4 micro-batches of a data rank with pp=2, 8 with pp=4"
std::string pipelines_text(const std::vector<MeshFigures>& all) {
  std::map<int, int> micro_batches;  // by the pp ranks
  std::string schedule;
  for (const MeshFigures& f : all)
    if (f.plan.schedule.stages() > 0) {
      schedule = f.plan.schedule_name;
      micro_batches[f.plan.shape.size(Axis::pp)] = f.plan.schedule.micro_batches;
    }
  std::vector<std::string> counts;
  for (const auto& [ranks, count] : micro_batches)
    counts.push_back(fmt::format("{}{} with pp={}", count,
                                 counts.empty() ? " micro-batches of a data rank" : "", ranks));
  return counts.empty() ? ""
                        : fmt::format("pipelines: {}; {}\n", schedule, fmt::join(counts, ", "));
}

std::string memory_table(const std::vector<MeshFigures>& all) {
  std::string text = fmt::format("  {:<16}{:<8}{:>27}{:>27}\n", "mesh", "ranks",
                                 "parameters to state", "peak of activations");
  for (const MeshFigures& f : all)
    for (std::size_t i = 0; i < f.bytes.memory.size(); ++i) {
      const MeshMemory &seen = f.bytes.memory[i], &formula = f.formula.memory[i];
      text += fmt::format("  {:<16}{:<8}{:>27}{:>27}\n", i == 0 ? f.plan.shape.text() : "",
                          f.bytes.memory.size() == 1 ? "all" : fmt::format("pp={}", i),
                          beside(seen.held, formula.held),
                          beside(seen.activations, formula.activations));
    }
  return text;
}

}  // namespace

std::string mesh_table(const MeshBenchTitle& t, const std::vector<MeshFigures>& all,
                       const std::vector<MeshLeftOut>& left_out) {
  std::string text = fmt::format(
      "{}: {} parameters on {} over {}; {} sequences of {} a step,\n{} along dp, fp32, AdamW, {} "
      "each{}\n",
      t.model, with_unit(static_cast<double>(t.parameters)), counted(t.ranks, "rank"), t.backend,
      t.batch, t.sequence, t.inner, counted(t.threads, "thread"), on_device_text(t.device));
  text += pipelines_text(all);
  text += "\nMB that a rank sends in a step along an axis (in brackets: by the formula)\n";
  text += fmt::format("  {:<16}{:>10}{:>17}{:>17}{:>17}\n", "mesh", "step (ms)", "tp", "dp", "pp");
  for (const MeshFigures& f : all)
    text += fmt::format("  {:<16}{:>10.1f}{:>17}{:>17}{:>17}\n", f.plan.shape.text(),
                        f.step_seconds * 1e3, beside(f.bytes.tp, f.formula.tp),
                        beside(f.bytes.dp, f.formula.dp), beside(f.bytes.pp, f.formula.pp));
  text += "\nMB in the memory of a rank: parameters, gradients and optimizer state (by the\n";
  text += "formula); activations (estimated before a run), on the rank with the most\n";
  text += memory_table(all);
  for (const MeshLeftOut& each : left_out)
    text += wrap(fmt::format("{} is left out: {}", each.mesh, each.why), 80) + "\n";
  return text;
}

Json to_json(const MeshBenchTitle& t, const std::vector<MeshFigures>& all) {
  Json rows = Json::array();
  for (const MeshFigures& f : all) {
    Json memory = Json::array();
    for (std::size_t i = 0; i < f.bytes.memory.size(); ++i)
      memory.push_back({{"pp_coordinate", i},
                        {"held_bytes", f.bytes.memory[i].held},
                        {"formula_held_bytes", f.formula.memory[i].held},
                        {"peak_activations_bytes", f.bytes.memory[i].activations},
                        {"estimated_peak_activations_bytes", f.formula.memory[i].activations}});
    rows.push_back({{"mesh", f.plan.shape.text()},
                    {"sequence_parallel", f.plan.sequence_parallel},
                    {"schedule", f.plan.schedule_name},
                    {"micro_batches", std::max(1, f.plan.schedule.micro_batches)},
                    {"strategy", t.inner},
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
                    {"tp_bytes_sent", f.bytes.tp},
                    {"formula_tp_bytes_sent", f.formula.tp},
                    {"dp_bytes_sent", f.bytes.dp},
                    {"formula_dp_bytes_sent", f.formula.dp},
                    {"pp_bytes_sent", f.bytes.pp},
                    {"formula_pp_bytes_sent", f.formula.pp},
                    {"held_bytes", f.bytes.mean_held()},
                    {"formula_held_bytes", f.formula.mean_held()},
                    {"peak_activations_bytes", f.bytes.largest_activations()},
                    {"estimated_peak_activations_bytes", f.formula.largest_activations()},
                    {"memory", memory}});
  }
  return rows;
}

}  // namespace ringside::cli
