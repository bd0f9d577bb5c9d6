// `ringside bench mesh`: every mesh of n ranks side by side: the time of a step, the bytes along
// each axis and the memory of a rank.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "bench/commands/step_arguments.hpp"
#include "bench/training/step_table.hpp"
#include "cli/options/command.hpp"
#include "cli/options/context_options.hpp"
#include "cli/options/rank_options.hpp"
#include "cli/pictures/wrap.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;
using parallel::Axis;

struct MeshArguments : StepOptions {
  std::string inner = "bucketed";
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  std::optional<std::int64_t> micro_batches;
  int stages_per_rank = 0;
  std::vector<std::string> meshes;  // empty: every one of pp, dp and tp
  ContextArguments context;
};

struct Meshes {
  std::vector<StepContender> contenders;
  std::vector<std::string> left_out;  // meshes that cannot train the model, and why
};

// "pp=2,tp=2": axes of one rank are left out.
std::string mesh_text(int p, int d, int t) {
  std::vector<std::string> axes;
  for (const auto& [axis, size] : {std::pair(Axis::pp, p), {Axis::dp, d}, {Axis::tp, t}})
    if (size > 1) axes.push_back(fmt::format("{}={}", name_of(axis), size));
  return axes.empty() ? "dp=1" : fmt::format("{}", fmt::join(axes, ","));
}

// A pipeline divides a data rank's share of a step into its schedule's micro-batches. A mesh with
// fsdp needs a strategy that shards.
StepContender contender_on(const MeshArguments& args, const std::string& axes, int ranks) {
  StepContender contender{axes, args.plan(ranks, args.inner)};
  training::Plan& plan = contender.plan;
  training::MeshPlan& mesh = plan.mesh;
  mesh.shape = parallel::MeshShape(axes);
  contender.name = mesh.shape.text();
  mesh.shape.require_ranks(ranks);
  mesh.context = args.context.options();
  mesh.sequence_parallel = args.sequence_parallel && mesh.shape.size(Axis::tp) > 1;
  if (mesh.shape.size(Axis::fsdp) > 1 && !args.inner.starts_with("zero")) plan.strategy = "zero3";
  if (const int p = mesh.shape.size(Axis::pp); p > 1) {
    const std::int64_t share = plan.options.batch / mesh.data_ranks(),
                       count = args.micro_batches.value_or(args.batch * p);
    require(share % count == 0,
            "the {} sequences of a data rank do not divide into {} micro-batches: choose another "
            "--micro-batches or --batch",
            share, count);
    training::plan_schedule(mesh, args.schedule, count, args.stages_per_rank);
    plan.options.accumulate = count;
  }
  require_divisible(mesh, plan.config, plan.options, plan.strategy);
  return contender;
}

// Every mesh of so many ranks: first without a pipeline, from data parallel to tensor parallel.
Meshes meshes_of(const MeshArguments& args, int ranks) {
  Meshes meshes;
  for (const std::string& mesh : args.meshes)
    meshes.contenders.push_back(contender_on(args, mesh, ranks));
  if (!args.meshes.empty()) return meshes;
  for (int p = 1; p <= ranks; ++p)
    for (int t = 1; t <= ranks / p; ++t) {
      if (ranks % (p * t) != 0) continue;
      const std::string mesh = mesh_text(p, ranks / (p * t), t);
      try {
        meshes.contenders.push_back(contender_on(args, mesh, ranks));
      } catch (const Error& error) {
        meshes.left_out.push_back(fmt::format("{} is left out: {}", mesh, error.what()));
      }
    }
  require(!meshes.contenders.empty(), "no mesh of {} ranks can train {}: {}", ranks, args.model,
          fmt::join(meshes.left_out, "; "));
  return meshes;
}

// The memory of the ranks with each pp coordinate.
Table memory_of(const std::vector<StepRow>& rows) {
  const Show mb = fixed(1, 1e-6);
  Table table{{words("mesh", "", 14), words("ranks"), only_in_json("pp_coordinate"),
               number("parameters to state", "held_bytes", mb, 25),
               number("peak of activations", "peak_activations_bytes", mb, 25),
               in_brackets("estimated_peak_activations_bytes", mb)}};
  for (const StepRow& row : rows)
    for (std::size_t i = 0; i < row.memory.size(); ++i)
      table.rows.push_back(
          {i == 0 ? row.name : "", row.memory.size() == 1 ? "all" : fmt::format("pp={}", i), i,
           held(row.memory[i].after_step), of(row.memory[i].peak, MemoryKind::activations),
           row.needed[i].activations});
  return table;
}

CommandResult result_of(const MeshArguments& args, BenchRun run, const std::vector<StepRow>& rows) {
  const Table steps = step_table("mesh", rows, {"micro_batches", "step_ms"});
  const training::Plan& plan = rows.front().plan;
  for (auto& [key, fact] : run.facts)
    if (key == "batch") fact = plan.options.batch;  // of all ranks
  run.facts.emplace_back("strategy", args.inner);
  const std::string title =
      fmt::format("{}; {} along dp, {} along pp", run.title, args.inner, args.schedule);
  CommandResult result{
      fmt::format("{}\nMB that a rank sends in a step along an axis\n{}\nMB in the memory of the "
                  "rank with the most: parameters, gradients and optimizer\nstate; activations "
                  "(estimated before a run)\n{}",
                  wrap(title, 80), steps.text(), memory_of(rows).text()),
      steps.json(run.facts)};
  for (std::size_t i = 0; i < rows.size(); ++i)
    result.figures[i]["memory"] = memory_of({rows[i]}).json();
  for (const std::string& mesh : meshes_of(args, plan.mesh.shape.ranks()).left_out)
    result.text += wrap(mesh, 80) + "\n";
  return result;
}

void bench_mesh(const MeshArguments& args) {
  bench_steps(
      args, [&](int ranks) { return meshes_of(args, ranks).contenders; }, InMemory::one_by_one,
      "choose a smaller model or --batch, or fewer ranks",
      [&](const BenchRun& run, const std::vector<StepRow>& rows) {
        return result_of(args, run, rows);
      });
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
      .separated_by(' ');
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
