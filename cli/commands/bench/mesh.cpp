// `ringside bench mesh`: every mesh of n ranks side by side: the time of a step, the bytes along
// each axis and the memory of a rank, beside the formulas.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "autograd/tensor/storage.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "cli/bench/training/mesh_report.hpp"
#include "cli/bench/training/step_bench.hpp"
#include "cli/command.hpp"
#include "cli/commands/bench/step_arguments.hpp"
#include "cli/pictures/simulation/prediction.hpp"
#include "collectives/transport/transport.hpp"
#include "ddp/bucketed.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "planning/simulation/simulation.hpp"
#include "training/mesh/mesh_strategy.hpp"
#include "training/run_plan.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;
using collectives::ProcessGroup;
using collectives::ReduceOp;
using parallel::Axis;
using transformer::Batch;

constexpr const char* more = R"(
Every mesh trains the same batch: --batch sequences for each rank, divided over
dp. A pipeline runs a data rank's share in micro-batches. With p = pp, d = dp
and t = tp ranks, N tokens of a data rank, L layers of width w, numbers of e
bytes, and n bytes of parameters on a rank, a rank sends in a step
  along tp  8 L/p (t-1)/t N w e   two sums of activations in forward and two in
                                  backward for each layer
            4/p (t-1)/t N w e     embedding, and the input of the head
            6/p (t-1)/t N e       cross-entropy: three numbers a token
  along dp  2 (d-1)/d n           gradients; see ringside bench zero
  along pp  2 (p-1)/p N w e       over each boundary activations one way and
                                  gradients the other; mean of the ranks
With v --stages-per-rank there are v p - 1 boundaries instead of p-1. With
--sequence-parallel the tp bytes stay, and the gradients of the norms are added
once; the pp bytes are divided by t. In a pipeline zero2 reduces gradients, and
zero3 also gathers parameters, for each micro-batch: zero3 at most so often.

The meshes run one after the other. Each has a warm-up step.

Examples:
  ringside bench mesh -n 4 --model lab
  ringside bench mesh -n 4 --model tiny --schedule zb_h1 --micro-batches 8
  ringside bench mesh -n 8 --model tiny --parallel zero1 --json mesh.json
  ringside bench mesh -n 2 --predict
  ringside bench mesh -n 4 --model tiny --device emulated)";

struct Arguments : StepArguments {
  std::string inner = "bucketed";
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  std::optional<std::int64_t> micro_batches;
  int stages_per_rank = 0;
  bool predict = false;
};

struct Meshes {
  std::vector<training::MeshPlan> plans;
  std::vector<MeshLeftOut> left_out;
};

// "pp=2,tp=2": axes of one rank are left out.
std::string mesh_text(int p, int d, int t) {
  std::vector<std::string> axes;
  for (const auto& [axis, size] : {std::pair(Axis::pp, p), {Axis::dp, d}, {Axis::tp, t}})
    if (size > 1) axes.push_back(fmt::format("{}={}", name_of(axis), size));
  return axes.empty() ? "dp=1" : fmt::format("{}", fmt::join(axes, ","));
}

training::MeshPlan plan_of(const Arguments& args, const std::string& mesh) {
  training::MeshPlan plan{parallel::MeshShape(mesh)};
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
  require_divisible(plan, args.config(),
                    options_on(plan, args.batch * plan.shape.ranks(), args.sequence), args.inner);
  return plan;
}

// Every mesh of so many ranks: first without a pipeline, from data parallel to tensor parallel.
Meshes meshes_of(const Arguments& args, int ranks) {
  Meshes meshes;
  for (int p = 1; p <= ranks; ++p)
    for (int t = 1; t <= ranks / p; ++t) {
      if (ranks % (p * t) != 0) continue;
      const std::string mesh = mesh_text(p, ranks / (p * t), t);
      try {
        meshes.plans.push_back(plan_of(args, mesh));
      } catch (const Error& error) {
        meshes.left_out.push_back({mesh, error.what()});
      }
    }
  if (meshes.plans.empty())
    fail("no mesh of {} ranks can train {}: {} is left out, because {}", ranks, args.model,
         meshes.left_out.front().mesh, meshes.left_out.front().why);
  return meshes;
}

// The micro-batches of a data rank.
std::vector<Batch> batches_of(const Arguments& args, int ranks, const training::MeshPlan& plan,
                              int data_rank) {
  const std::int64_t count = std::max(1, plan.schedule.micro_batches);
  const std::int64_t each = args.batch * ranks / plan.data_ranks() / count;
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i)
    batches.push_back(args.sequences((data_rank * count + i) * each, each));
  return batches;
}

double held_now() {
  double bytes = 0;
  for (const MemoryKind kind :
       {MemoryKind::parameters, MemoryKind::gradients, MemoryKind::optimizer_state})
    bytes += static_cast<double>(autograd::memory_use(kind).current);
  return bytes;
}

double over_ranks(double value, ReduceOp op, ProcessGroup& world) {
  world.all_reduce(std::span(&value, 1), op);
  return value;
}

// Of the ranks with each pp coordinate, on all ranks.
std::vector<MeshMemory> memory_over_ranks(const training::MeshPlan& plan, ProcessGroup& world) {
  const int p = plan.shape.size(Axis::pp);
  const int here = plan.shape.coordinate(world.rank(), Axis::pp);
  const double activations =
      static_cast<double>(autograd::memory_use(MemoryKind::activations).peak);
  std::vector<MeshMemory> memory;
  for (int i = 0; i < p; ++i)
    memory.push_back(
        {over_ranks(i == here ? held_now() : 0, ReduceOp::sum, world) * p / world.size(),
         over_ranks(i == here ? activations : 0, ReduceOp::max, world)});
  return memory;
}

// Bytes that this rank has sent along the axes.
MeshBytes sent_by(training::MeshStrategy& strategy) {
  const auto along = [&](Axis axis) {
    return static_cast<double>(strategy.mesh().group(axis).traffic().payload_bytes_sent);
  };
  const training::PipelineRun* const pipeline = strategy.pipeline();
  return {along(Axis::tp),
          along(Axis::dp),
          pipeline ? static_cast<double>(pipeline->lanes().bytes_sent()) : 0,
          {}};
}

// One mesh, after a step to warm up.
MeshFigures measure(const Arguments& args, const training::MeshPlan& plan, ProcessGroup& world) {
  const autograd::Device device = device_from(args.device, autograd::DType::fp32);
  auto made = std::make_unique<training::MeshStrategy>(world, plan, args.config(), args.inner,
                                                       ddp::Bucketed::default_bucket_mb);
  training::MeshStrategy& strategy = *made;
  StepBench bench(world, args.config(), autograd::DType::fp32, device);
  bench.add(std::move(made), batches_of(args, world.size(), plan, strategy.data_rank()), world);
  bench.warm_up(1);
  autograd::reset_peak_memory();
  const MeshBytes before = sent_by(strategy);
  MeshFigures figures{bench.measure(args.steps)[0], plan, {}, {}};
  const MeshBytes after = sent_by(strategy);
  figures.loss = bench.loss(0);
  const auto of_a_step = [&](double bytes) {
    return over_ranks(bytes / args.steps, ReduceOp::avg, world);
  };
  figures.bytes = {of_a_step(after.tp - before.tp), of_a_step(after.dp - before.dp),
                   of_a_step(after.pp - before.pp), memory_over_ranks(plan, world)};
  figures.formula =
      mesh_formula(plan, args.config(), args.inner,
                   options_on(plan, args.batch * world.size(), args.sequence), device);
  return figures;
}

// Of the step that measure() takes.
planning::Plan simulated_plan(const Arguments& args, const training::MeshPlan& mesh, int ranks) {
  planning::Plan plan{.mesh = mesh.shape,
                      .sequence = args.sequence,
                      .sequence_parallel = mesh.sequence_parallel,
                      .types = {.parameters = 4, .gradients = 4, .activations = 4}};
  if (args.inner.starts_with("zero")) plan.zero = args.inner.back() - '0';
  plan.micro_batches = std::max(1, mesh.schedule.micro_batches);
  plan.micro_batch = args.batch * ranks / mesh.data_ranks() / plan.micro_batches;
  if (!mesh.schedule_name.empty() && !mesh.schedule_name.starts_with("csv:"))
    plan.schedule = mesh.schedule_name;
  if (plan.schedule == "interleaved") plan.chunks = mesh.schedule.stages() / mesh.schedule.ranks();
  return plan;
}

// Measures a step and, just before and after it, the rates from which it is simulated.
Prediction predict(const Arguments& args, const training::MeshPlan& mesh, ProcessGroup& world,
                   const std::function<double()>& measure_step) {
  const planning::Model model = planning::model_from(args.config(), args.model);
  const planning::Plan plan = simulated_plan(args, mesh, world.size());
  planning::SimulationOptions options;
  if (mesh.schedule_name.starts_with("csv:")) options.schedule_file = mesh.schedule_name;

  const MachineRates before = measure_rates(world, model, plan);
  const double measured = measure_step();
  const MachineRates rates = faster_of(before, measure_rates(world, model, plan));
  // On a real link the cores that compute also move the bytes.
  const double overlap = environment("RINGSIDE_LINK") ? 1 : 0;
  const auto machine = machine_of(rates, world.size(), overlap);
  return {mesh.shape.text(), rates, simulate(model, plan, machine, options).step, measured};
}

void bench_as_rank(const Arguments& args, ProcessGroup& world) {
  std::vector<MeshFigures> all;
  std::vector<Prediction> predictions;
  const Meshes meshes = meshes_of(args, world.size());
  for (const training::MeshPlan& plan : meshes.plans) {
    const auto measure_step = [&] {
      all.push_back(measure(args, plan, world));
      return all.back().step_seconds;
    };
    if (args.predict)
      predictions.push_back(predict(args, plan, world, measure_step));
    else
      measure_step();
    require_equal_losses(
        {{all.front().plan.shape.text(), all.front().loss}, {plan.shape.text(), all.back().loss}});
  }
  if (world.rank() != 0) return;
  BenchRun run = describe_run(args, args.device.name, &world);
  run.batch *= world.size();
  std::FILE* const out = file_beside(args.json);
  fmt::print(out, "{}", mesh_table(run, args.inner, all, meshes.left_out));
  if (args.predict) fmt::print(out, "{}", prediction_table(predictions));
  std::fflush(out);
  if (args.json.empty()) return;
  Json json = to_json(run, args.inner, all);
  const Json predicted = prediction_json(predictions);
  for (std::size_t i = 0; i < predicted.size(); ++i) json[i].update(predicted[i]);
  write_json_file(args.json, json);
}

std::vector<planning::RankMemory> memory_of_meshes(const Arguments& args, int ranks,
                                                   autograd::Device device) {
  std::vector<planning::RankMemory> needs;
  for (const training::MeshPlan& plan : meshes_of(args, ranks).plans) {
    const planning::Plan run = training::run_plan(
        options_on(plan, args.batch * ranks, args.sequence), autograd::DType::fp32, device,
        plan.data_ranks(), args.inner, ddp::Bucketed::default_bucket_mb, &plan);
    needs.push_back(
        planning::memory_of_largest_rank(planning::model_from(args.config(), args.model), run));
  }
  return needs;
}

}  // namespace

void add_bench_mesh_command(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "mesh", "Measure time, bytes along each axis and memory of every mesh of n ranks");
  const auto args = std::make_shared<Arguments>();
  args->steps = 5;
  args->ranks.otherwise = 4;
  add_ranks_of_steps_options(*command, *args);
  add_backend_option(*command, args->ranks);
  command->add_option("--parallel", args->inner, "The data-parallel strategy along dp")
      ->type_name("NAME")
      ->check(one_of({"bucketed", "zero1", "zero2", "zero3"}))
      ->capture_default_str();
  command->add_flag("--sequence-parallel", args->sequence_parallel,
                    "The tp ranks also divide the tokens of each sequence");
  command
      ->add_option("--schedule", args->schedule,
                   fmt::format("The order of micro-batches in a pipeline: {}, or csv:FILE",
                               pipeline_parallel::schedule_names()))
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--micro-batches", args->micro_batches,
                   "Micro-batches of each data rank in a pipeline [--batch times the pp ranks]")
      ->type_name("K")
      ->check(at_least_one("micro-batch"));
  command
      ->add_option("--stages-per-rank", args->stages_per_rank,
                   "Pipeline stages on each pp rank, with --schedule interleaved [2]")
      ->type_name("N")
      ->check(at_least_one("stage"));
  command->add_flag("--predict", args->predict,
                    "Also simulate each mesh with rates measured here: predicted beside measured");
  command->footer(more);
  command->callback([args] {
    if (args->predict && args->device.name != "cpu")
      throw UsageError("--predict measures the rates of the CPU: leave out --device");
    args->backends = {args->ranks.backend};
    run_on_step_ranks(
        *args,
        [&](int ranks, autograd::Device device) { return memory_of_meshes(*args, ranks, device); },
        "choose a smaller model or --batch, or fewer ranks",
        [&](std::span<ProcessGroup> groups) { bench_as_rank(*args, groups[0]); });
  });
}

}  // namespace ringside::cli
