// `ringside bench mesh`: every mesh of n ranks side by side: the time of a step, the bytes along
// each axis and the memory of a rank, beside the formulas.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autograd/tensor/storage.hpp"
#include "base/error.hpp"
#include "bench/commands/step_arguments.hpp"
#include "bench/training/step_bench.hpp"
#include "bench/training/step_options.hpp"
#include "cli/options/command.hpp"
#include "cli/options/context_options.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/wrap.hpp"
#include "ddp/bucketed.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "planning/run_plan.hpp"
#include "planning/simulation/step_formula.hpp"
#include "training/mesh/mesh_plan.hpp"
#include "training/mesh/mesh_strategy.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;
using collectives::ProcessGroup;
using collectives::ReduceOp;
using parallel::Axis;
using transformer::Batch;

struct MeshArguments : StepArguments {
  std::string inner = "bucketed";
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  std::optional<std::int64_t> micro_batches;
  int stages_per_rank = 0;
  std::vector<std::string> meshes;  // empty: every one of pp, dp and tp
  ContextArguments context;
};

struct Meshes {
  std::vector<training::MeshPlan> plans;
  std::vector<std::string> left_out;  // meshes that cannot train the model, and why
};

// A pipeline divides a data rank's share of a step into its schedule's micro-batches.
training::TrainerOptions options_on(const MeshArguments& args, const training::MeshPlan& plan) {
  training::TrainerOptions options;
  options.batch = args.batch * plan.shape.ranks();
  options.sequence = args.sequence;
  options.accumulate = std::max(1, plan.schedule.micro_batches);
  return options;
}

// A mesh with fsdp needs a strategy that shards.
std::string strategy_on(const MeshArguments& args, const training::MeshPlan& plan) {
  const bool shards = plan.shape.size(Axis::fsdp) > 1;
  return shards && !args.inner.starts_with("zero") ? "zero3" : args.inner;
}

// As planning/ accounts for it.
planning::Plan planned(const MeshArguments& args, const training::MeshPlan& plan,
                       autograd::Device device) {
  return planning::run_plan(options_on(args, plan), autograd::DType::fp32, device,
                            plan.data_ranks(), strategy_on(args, plan),
                            ddp::Bucketed::default_bucket_mb, &plan);
}

// "pp=2,tp=2": axes of one rank are left out.
std::string mesh_text(int p, int d, int t) {
  std::vector<std::string> axes;
  for (const auto& [axis, size] : {std::pair(Axis::pp, p), {Axis::dp, d}, {Axis::tp, t}})
    if (size > 1) axes.push_back(fmt::format("{}={}", name_of(axis), size));
  return axes.empty() ? "dp=1" : fmt::format("{}", fmt::join(axes, ","));
}

training::MeshPlan plan_of(const MeshArguments& args, const std::string& mesh, int ranks) {
  training::MeshPlan plan{parallel::MeshShape(mesh)};
  plan.shape.require_ranks(ranks);
  plan.context = args.context.options();
  plan.sequence_parallel = args.sequence_parallel && plan.shape.size(Axis::tp) > 1;
  const std::int64_t share = args.batch * plan.shape.ranks() / plan.data_ranks();
  const int p = plan.shape.size(Axis::pp);
  if (p > 1) {
    const std::int64_t count = args.micro_batches.value_or(args.batch * p);
    require(share % count == 0,
            "the {} sequences of a data rank do not divide into {} micro-batches: choose another "
            "--micro-batches or --batch",
            share, count);
    training::plan_schedule(plan, args.schedule, count, args.stages_per_rank);
  }
  require_divisible(plan, args.config(), options_on(args, plan), strategy_on(args, plan));
  return plan;
}

// Every mesh of so many ranks: first without a pipeline, from data parallel to tensor parallel.
Meshes meshes_of(const MeshArguments& args, int ranks) {
  Meshes meshes;
  for (const std::string& mesh : args.meshes) meshes.plans.push_back(plan_of(args, mesh, ranks));
  if (!args.meshes.empty()) return meshes;
  for (int p = 1; p <= ranks; ++p)
    for (int t = 1; t <= ranks / p; ++t) {
      if (ranks % (p * t) != 0) continue;
      const std::string mesh = mesh_text(p, ranks / (p * t), t);
      try {
        meshes.plans.push_back(plan_of(args, mesh, ranks));
      } catch (const Error& error) {
        meshes.left_out.push_back(fmt::format("{} is left out: {}", mesh, error.what()));
      }
    }
  require(!meshes.plans.empty(), "no mesh of {} ranks can train {}: {}", ranks, args.model,
          fmt::join(meshes.left_out, "; "));
  return meshes;
}

// The micro-batches of a data rank, and of their tokens those of this rank.
std::vector<Batch> batches_of(const MeshArguments& args, int ranks, const training::MeshPlan& plan,
                              const training::MeshStrategy& strategy) {
  const std::int64_t count = std::max(1, plan.schedule.micro_batches);
  const std::int64_t each = args.batch * ranks / plan.data_ranks() / count;
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i)
    batches.push_back(args.sequences((strategy.data_rank() * count + i) * each, each,
                                     strategy.tokens_of(args.sequence)));
  return batches;
}

using BytesAlong = std::map<Axis, double>;

// What was measured of one mesh: bytes that a rank sends along each axis in a step, the mean of the
// ranks; and for each pp coordinate the bytes that its ranks hold.
struct MeshFigures {
  training::MeshPlan plan;
  StepFigures step;
  double loss = 0;  // of the last step
  BytesAlong sent = {};
  std::vector<double> held = {};         // parameters, gradients and the state of AdamW: the mean
  std::vector<double> activations = {};  // the peak, on the rank with the most
  planning::StepFormula formula = {};
};

// Every rank must call it.
void add_memory(MeshFigures& figures, const StepMemory& memory, ProcessGroup& world) {
  const parallel::MeshShape& shape = figures.plan.shape;
  const int p = shape.size(Axis::pp);
  for (int i = 0; i < p; ++i) {
    const bool here = shape.coordinate(world.rank(), Axis::pp) == i;
    const double bytes = here ? held(memory.after_step) : 0,
                 activations = here ? of(memory.peak, MemoryKind::activations) : 0;
    figures.held.push_back(over_ranks(bytes, ReduceOp::sum, world) * p / world.size());
    figures.activations.push_back(over_ranks(activations, ReduceOp::max, world));
  }
}

// One mesh, after a step to warm up.
MeshFigures measure(const MeshArguments& args, const training::MeshPlan& plan,
                    ProcessGroup& world) {
  const autograd::Device device = device_from(args.device, autograd::DType::fp32);
  auto made = std::make_unique<training::MeshStrategy>(
      world, plan, args.config(), strategy_on(args, plan), ddp::Bucketed::default_bucket_mb);
  training::MeshStrategy& strategy = *made;
  StepBench bench(world, args.config(), autograd::DType::fp32, device);
  bench.add(std::move(made), batches_of(args, world.size(), plan, strategy), world);
  bench.warm_up(1);
  auto before = strategy.bytes_sent_by_axis();
  MeshFigures figures{.plan = plan, .step = bench.measure(args.steps)[0]};
  figures.loss = bench.loss(0);
  for (const auto& [axis, bytes] : strategy.bytes_sent_by_axis())
    figures.sent[axis] =
        over_ranks(static_cast<double>(bytes - before[axis]) / args.steps, ReduceOp::avg, world);
  add_memory(figures, bench.memory(0), world);
  figures.formula = planning::step_formula(planning::model_from(args.config(), args.model),
                                           planned(args, plan, device));
  return figures;
}

const Show mb = fixed(1, 1e-6);

// The steps, with the memory of all pp coordinates together for JSON.
Table steps_of(const std::vector<MeshFigures>& all) {
  Table table{{words("mesh", "mesh"), only_in_json("sequence_parallel"), only_in_json("schedule"),
               number("micro-\nbatches", "micro_batches"),
               number("step\n(ms)", "step_ms", fixed(1)), only_in_json("communication_ms"),
               only_in_json("held_bytes"), only_in_json("formula_held_bytes"),
               only_in_json("peak_activations_bytes"),
               only_in_json("estimated_peak_activations_bytes")}};
  // A column for each axis that a mesh has, the innermost first.
  const std::vector<parallel::AxisEntry> axes(parallel::all_axes().rbegin(),
                                              parallel::all_axes().rend());
  for (const parallel::AxisEntry& entry : axes) {
    const std::string key = fmt::format("{}_bytes_sent", entry.name);
    const bool is_shown = std::ranges::any_of(
        all, [&](const MeshFigures& f) { return f.plan.shape.size(entry.axis) > 1; });
    table.head.push_back(is_shown ? number(std::string(entry.name), key, mb) : only_in_json(key));
    table.head.push_back(is_shown ? in_brackets("formula_" + key, mb)
                                  : only_in_json("formula_" + key));
  }
  for (const MeshFigures& f : all) {
    double held = 0, held_by_formula = 0, activations = 0, estimated = 0;
    for (std::size_t i = 0; i < f.held.size(); ++i) {
      held += f.held[i] / static_cast<double>(f.held.size());
      held_by_formula += f.formula.held(i) / static_cast<double>(f.held.size());
      activations = std::max(activations, f.activations[i]);
      estimated = std::max(estimated, f.formula.memory[i].of(MemoryKind::activations));
    }
    table.rows.push_back({f.plan.shape.text(), f.plan.sequence_parallel, f.plan.schedule_name,
                          std::max(1, f.plan.schedule.micro_batches), f.step.step_seconds * 1e3,
                          f.step.exposed_seconds * 1e3, held, held_by_formula, activations,
                          estimated});
    for (const parallel::AxisEntry& entry : axes) {
      table.rows.back().push_back(f.sent.at(entry.axis));
      table.rows.back().push_back(f.formula.sent.at(entry.axis));
    }
  }
  return table;
}

// The memory of the ranks with each pp coordinate.
Table memory_of(const std::vector<MeshFigures>& all) {
  Table table{{words("mesh", "", 14), words("ranks"), only_in_json("pp_coordinate"),
               number("parameters to state", "held_bytes", mb, 25),
               in_brackets("formula_held_bytes", mb),
               number("peak of activations", "peak_activations_bytes", mb, 25),
               in_brackets("estimated_peak_activations_bytes", mb)}};
  for (const MeshFigures& f : all)
    for (std::size_t i = 0; i < f.held.size(); ++i)
      table.rows.push_back({i == 0 ? f.plan.shape.text() : "",
                            f.held.size() == 1 ? "all" : fmt::format("pp={}", i), i, f.held[i],
                            f.formula.held(i), f.activations[i],
                            f.formula.memory[i].of(MemoryKind::activations)});
  return table;
}

BenchResult result_of(const MeshArguments& args, const std::vector<MeshFigures>& all,
                      BenchRun run) {
  const std::string title =
      fmt::format("{}; {} along dp, {} along pp", run.title(), args.inner, args.schedule);
  run.batch *= run.ranks;
  Facts facts = run.facts();
  facts.emplace_back("strategy", args.inner);
  BenchResult result{
      fmt::format(
          "{}\nMB that a rank sends in a step along an axis (in brackets: by the formula)\n{}\n"
          "MB in the memory of a rank: parameters, gradients and optimizer state (by the\n"
          "formula); activations (estimated before a run), on the rank with the most\n{}",
          wrap(title, 80), steps_of(all).text(), memory_of(all).text()),
      steps_of(all).json(facts)};
  for (std::size_t i = 0; i < all.size(); ++i)
    result.figures[i]["memory"] = memory_of({all[i]}).json();
  return result;
}

void bench_as_rank(const MeshArguments& args, ProcessGroup& world) {
  std::vector<MeshFigures> all;
  const Meshes meshes = meshes_of(args, world.size());
  for (const training::MeshPlan& plan : meshes.plans) {
    all.push_back(measure(args, plan, world));
    require_equal_losses(
        {{all.front().plan.shape.text(), all.front().loss}, {plan.shape.text(), all.back().loss}});
  }
  if (world.rank() != 0) return;
  BenchResult result = result_of(args, all, describe_run(args, args.device.name, &world));
  for (const std::string& mesh : meshes.left_out) result.text += wrap(mesh, 80) + "\n";
  write_results({result}, args.json);
}

std::vector<planning::RankMemory> memory_of_meshes(const MeshArguments& args, int ranks,
                                                   autograd::Device device) {
  std::vector<planning::RankMemory> needs;
  const auto model = planning::model_from(args.config(), args.model);
  for (const training::MeshPlan& plan : meshes_of(args, ranks).plans)
    needs.push_back(planning::memory_of_largest_rank(model, planned(args, plan, device)));
  return needs;
}

void bench_mesh(const MeshArguments& args) {
  run_on_step_ranks(
      args,
      [&](int ranks, autograd::Device device) { return memory_of_meshes(args, ranks, device); },
      "choose a smaller model or --batch, or fewer ranks",
      [&](std::span<ProcessGroup> groups) { bench_as_rank(args, groups[0]); });
}

}  // namespace

void add_bench_mesh_command(CLI::App& bench) {
  const auto [option, args] = add_command(
      bench, "mesh", "Measure time, bytes along each axis and memory of every mesh of n ranks",
      bench_mesh);
  args.steps = 5;
  args.ranks.otherwise = 4;
  add_ranks_of_steps_options(option, args);
  add_backend_option(option, args.backends.front());
  option("--parallel NAME", args.inner, "The data-parallel strategy along dp",
         one_of({"bucketed", "zero1", "zero2", "zero3"}));
  option.flag("--sequence-parallel", args.sequence_parallel,
              "The tp ranks also divide the tokens of each sequence");
  option("--schedule NAME", args.schedule,
         fmt::format("The order of micro-batches in a pipeline: {}, or csv:FILE",
                     pipeline_parallel::schedule_names()));
  option("--mesh AXES", args.meshes,
         "Meshes to measure, such as dp=2,fsdp=2 or cp=4 [every one of pp, dp and tp]")
      ->delimiter(' ');
  args.context.add_to(option);
  option("--micro-batches K", args.micro_batches,
         "Micro-batches of each data rank in a pipeline [--batch times the pp ranks]",
         at_least_one("micro-batch"));
  option("--stages-per-rank N", args.stages_per_rank,
         "Pipeline stages on each pp rank, with --schedule interleaved, looped_bfs or "
         "interleaved_zb [2]",
         at_least_one("stage"));
}

}  // namespace ringside::cli
