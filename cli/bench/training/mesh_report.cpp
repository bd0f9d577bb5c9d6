#include "cli/bench/training/mesh_report.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/bench/training/zero_report.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/wrap.hpp"
#include "ddp/bucketed.hpp"
#include "training/run_plan.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::cli {

using autograd::MemoryKind;
using parallel::Axis;
using training::TrainerOptions;
using transformer::Config;
using transformer::ParameterEntry;
using transformer::ParameterTable;

namespace {

constexpr double bytes_of_fp32 = 4;
constexpr double default_bucket_mb = ddp::Bucketed::default_bucket_mb;

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

TrainerOptions options_on(const training::MeshPlan& plan, std::int64_t batch,
                          std::int64_t sequence) {
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
double tensor_bytes(const training::MeshPlan& plan, const Config& config, double tokens) {
  const int t = plan.shape.size(Axis::tp), p = plan.shape.size(Axis::pp);
  const double d = static_cast<double>(config.d_model), layers = static_cast<double>(config.layers),
               hop = static_cast<double>(t - 1) / t;
  double bytes = hop * tokens * bytes_of_fp32 * (8 * layers * d + 2 * d + 2 * d + 2 * 3);
  if (plan.sequence_parallel) bytes += 2 * hop * norm_bytes(config);
  return bytes / p;
}

// All tokens pass each boundary between stages of different ranks, forward and backward.
double pipeline_bytes(const training::MeshPlan& plan, const Config& config, double tokens) {
  const auto& rank_of = plan.schedule.rank_of;
  int boundaries = 0;
  for (std::size_t stage = 1; stage < rank_of.size(); ++stage)
    if (rank_of[stage] != rank_of[stage - 1]) ++boundaries;
  const int divisor = plan.sequence_parallel ? plan.shape.size(Axis::tp) : 1;
  return 2 * boundaries * tokens / divisor * static_cast<double>(config.d_model) * bytes_of_fp32 /
         plan.shape.size(Axis::pp);
}

}  // namespace

MeshBytes mesh_formula(const training::MeshPlan& plan, const Config& config,
                       const std::string& inner, const TrainerOptions& options,
                       autograd::Device device) {
  const int t = plan.shape.size(Axis::tp), p = plan.shape.size(Axis::pp), d = plan.data_ranks();
  const double tokens = static_cast<double>(options.batch * options.sequence) / d;
  MeshBytes bytes{tensor_bytes(plan, config, tokens), 0, pipeline_bytes(plan, config, tokens), {}};
  bytes.memory.resize(static_cast<std::size_t>(p));

  const planning::Model model = planning::model_from(config, "");
  const planning::Plan run = training::run_plan(options, autograd::DType::fp32, device, d, inner,
                                                default_bucket_mb, &plan);
  const ParameterTable table(config);
  for (const int rank : plan.shape.model_members(0)) {
    const transformer::ModelPart part = training::part_of_rank(plan, config, rank);
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
    const int stage = plan.shape.coordinate(rank, Axis::pp);
    memory.activations = planning::memory_of_rank(model, run, stage).of(MemoryKind::activations);
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

const Show mb = fixed(1, 1e-6);

// The memory of the ranks with each pp coordinate.
void add_memory(Table& table, const MeshFigures& f) {
  for (std::size_t i = 0; i < f.bytes.memory.size(); ++i) {
    const MeshMemory &seen = f.bytes.memory[i], &formula = f.formula.memory[i];
    table.rows.push_back({i == 0 ? f.plan.shape.text() : "",
                          f.bytes.memory.size() == 1 ? "all" : fmt::format("pp={}", i), i,
                          seen.held, formula.held, seen.activations, formula.activations});
  }
}

Table empty_memory() {
  return {{words("mesh", "", 14), words("ranks"), only_in_json("pp_coordinate"),
           number("parameters to state", "held_bytes", mb, 25),
           in_brackets("formula_held_bytes", mb),
           number("peak of activations", "peak_activations_bytes", mb, 25),
           in_brackets("estimated_peak_activations_bytes", mb)}};
}

Table steps_of(const std::vector<MeshFigures>& all) {
  Table table{{words("mesh", "mesh", 14), only_in_json("sequence_parallel"),
               only_in_json("schedule"), only_in_json("micro_batches"),
               number("step (ms)", "step_ms", fixed(1)), only_in_json("communication_ms"),
               number("tp", "tp_bytes_sent", mb, 15), in_brackets("formula_tp_bytes_sent", mb),
               number("dp", "dp_bytes_sent", mb, 15), in_brackets("formula_dp_bytes_sent", mb),
               number("pp", "pp_bytes_sent", mb, 15), in_brackets("formula_pp_bytes_sent", mb),
               only_in_json("held_bytes"), only_in_json("formula_held_bytes"),
               only_in_json("peak_activations_bytes"),
               only_in_json("estimated_peak_activations_bytes")}};
  for (const MeshFigures& f : all)
    table.rows.push_back({f.plan.shape.text(), f.plan.sequence_parallel, f.plan.schedule_name,
                          std::max(1, f.plan.schedule.micro_batches), f.step_seconds * 1e3,
                          f.exposed_seconds * 1e3, f.bytes.tp, f.formula.tp, f.bytes.dp,
                          f.formula.dp, f.bytes.pp, f.formula.pp, f.bytes.mean_held(),
                          f.formula.mean_held(), f.bytes.largest_activations(),
                          f.formula.largest_activations()});
  return table;
}

}  // namespace

std::string mesh_table(const BenchRun& run, const std::string& inner,
                       const std::vector<MeshFigures>& all,
                       const std::vector<MeshLeftOut>& left_out) {
  Table memory = empty_memory();
  for (const MeshFigures& f : all) add_memory(memory, f);
  std::string text = fmt::format(
      "{}: {} on {} over {}; {} sequences of {} a step,\n{} along dp, fp32, AdamW, {}\n{}\n"
      "MB that a rank sends in a step along an axis (in brackets: by the formula)\n{}\n"
      "MB in the memory of a rank: parameters, gradients and optimizer state (by the\n"
      "formula); activations (estimated before a run), on the rank with the most\n{}",
      run.model, run.parameters_text(), counted(run.ranks, "rank"), run.backend, run.batch,
      run.sequence, inner, run.threads_text(), pipelines_text(all), steps_of(all).text(),
      memory.text());
  for (const MeshLeftOut& each : left_out)
    text += wrap(fmt::format("{} is left out: {}", each.mesh, each.why), 80) + "\n";
  return text;
}

Json to_json(const BenchRun& run, const std::string& inner, const std::vector<MeshFigures>& all) {
  Facts facts = run.facts({"model", "parameters", "ranks", "backend", "batch", "sequence",
                           "threads", "type", "device"});
  facts.emplace_back("strategy", inner);
  Json rows = steps_of(all).json(facts);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Table memory = empty_memory();
    add_memory(memory, all[i]);
    rows[i]["memory"] = memory.json();
  }
  return rows;
}

}  // namespace ringside::cli
