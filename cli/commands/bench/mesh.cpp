// `ringside bench mesh`: every mesh of n ranks side by side: the time of a step, the bytes along
// each axis and the memory of a rank, beside the formulas.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "autograd/tensor/storage.hpp"
#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "cli/bench/median.hpp"
#include "cli/bench/training/mesh_report.hpp"
#include "cli/bench/training/step.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/one_of.hpp"
#include "cli/planning/prediction.hpp"
#include "cli/training/device_option.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/mesh/mesh_strategy.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "cli/training/product_calibration.hpp"
#include "collectives/transport/transport.hpp"
#include "ddp/bucketed.hpp"
#include "pipeline_parallel/generators/catalogue.hpp"
#include "planning/simulation/simulation.hpp"
#include "transformer/data/batches.hpp"

namespace ringside::cli {
namespace {

using autograd::MemoryKind;
using collectives::ProcessGroup;
using collectives::ReduceOp;
using parallel::Axis;
using transformer::Batch;
using transformer::Model;

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

struct Arguments {
  BenchStepOptions step;
  RanksOption ranks{.count = {}, .otherwise = 4};
  std::string inner = "bucketed";
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  std::optional<std::int64_t> micro_batches;
  int stages_per_rank = 0;
  DeviceOption device;
  std::optional<int> threads;
  std::optional<double> memory_limit_gb;
  bool predict = false;
};

autograd::Device device_of(const Arguments& args) {
  return device_from(args.device, autograd::DType::fp32);
}

struct Meshes {
  std::vector<MeshPlan> plans;
  std::vector<MeshLeftOut> left_out;
};

// "pp=2,tp=2": axes of one rank are left out.
std::string mesh_text(int p, int d, int t) {
  std::vector<std::string> axes;
  for (const auto& [axis, size] : {std::pair(Axis::pp, p), {Axis::dp, d}, {Axis::tp, t}})
    if (size > 1) axes.push_back(fmt::format("{}={}", name_of(axis), size));
  return axes.empty() ? "dp=1" : fmt::format("{}", fmt::join(axes, ","));
}

MeshPlan plan_of(const Arguments& args, const std::string& mesh) {
  MeshPlan plan{parallel::MeshShape(mesh)};
  plan.sequence_parallel = args.sequence_parallel && plan.shape.size(Axis::tp) > 1;
  const std::int64_t share = args.step.batch * plan.shape.ranks() / plan.data_ranks();
  const int p = plan.shape.size(Axis::pp);
  if (p > 1) {
    const std::int64_t count = args.micro_batches.value_or(args.step.batch * p);
    require(share % count == 0,
            "the {} sequences of a data rank do not divide into {} micro-batches: choose another "
            "--micro-batches or --batch",
            share, count);
    plan_schedule(plan, args.schedule, count, args.stages_per_rank);
  }
  require_divisible(plan, args.step.config(),
                    options_on(plan, args.step.batch * plan.shape.ranks(), args.step.sequence),
                    args.inner);
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
    fail("no mesh of {} ranks can train {}: {} is left out, because {}", ranks, args.step.model,
         meshes.left_out.front().mesh, meshes.left_out.front().why);
  return meshes;
}

// `count` sequences of the step's batch, which does not depend on the mesh.
Batch sequences(const Arguments& args, std::int64_t first, std::int64_t count) {
  BenchStepOptions one = args.step;
  one.batch = 1;
  Batch batch;
  batch.sequences = count;
  batch.length = args.step.sequence;
  for (std::int64_t s = first; s < first + count; ++s) {
    const auto append_to = [&](std::vector<std::int32_t>& row, std::uint64_t stream) {
      const auto tokens = one.tokens(2 * static_cast<std::uint64_t>(s) + stream);
      const auto values = tokens.values<std::int32_t>();
      row.insert(row.end(), values.begin(), values.end());
    };
    append_to(batch.input, 0);
    append_to(batch.target, 1);
  }
  return batch;
}

// The micro-batches of a data rank.
std::vector<Batch> batches_of(const Arguments& args, int ranks, const MeshPlan& plan,
                              int data_rank) {
  const std::int64_t count = std::max(1, plan.schedule.micro_batches);
  const std::int64_t each = args.step.batch * ranks / plan.data_ranks() / count;
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i)
    batches.push_back(sequences(args, (data_rank * count + i) * each, each));
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
std::vector<MeshMemory> memory_over_ranks(const MeshPlan& plan, ProcessGroup& world) {
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
MeshBytes sent_by(MeshStrategy& strategy) {
  const auto along = [&](Axis axis) {
    return static_cast<double>(strategy.mesh().group(axis).traffic().payload_bytes_sent);
  };
  const PipelineRun* const pipeline = strategy.pipeline();
  return {along(Axis::tp),
          along(Axis::dp),
          pipeline ? static_cast<double>(pipeline->lanes().bytes_sent()) : 0,
          {}};
}

// One mesh. `loss` is that of the last step, the same on every mesh.
MeshFigures measure(const Arguments& args, const MeshPlan& plan, ProcessGroup& world,
                    double& loss) {
  const auto config = args.step.config();
  const autograd::Device device = device_of(args);
  auto made = std::make_unique<MeshStrategy>(world, plan, config, args.inner,
                                             ddp::Bucketed::default_bucket_mb);
  Model model(config, autograd::DType::fp32, device, made->part(), made->tensor_division());
  // The strategy is destroyed before the model, from which it removes its hooks.
  const std::unique_ptr<MeshStrategy> owned = std::move(made);
  MeshStrategy& strategy = *owned;
  strategy.prepare(model);
  const auto optimizer = strategy.make_optimizer(
      {{.parameters = model.named_parameters(), .learning_rate = 1e-4, .weight_decay = 0.1}},
      [](std::vector<autograd::ParameterGroup> groups) {
        return std::make_unique<autograd::AdamW>(std::move(groups));
      });
  const std::vector<Batch> batches = batches_of(args, world.size(), plan, strategy.data_rank());

  // The step that the trainer takes.
  const auto step = [&] {
    strategy.clear_gradients(*optimizer);
    loss = strategy.run_batches(model, batches);
    strategy.finish_gradients();
    strategy.clip_gradients(*optimizer, 1);
    strategy.step(*optimizer);
    if (device != autograd::Device::cpu) autograd::device_memory(device).synchronise();
  };
  step();

  MeshFigures figures{plan, 0, 0, {}, {}};
  figures.formula =
      mesh_formula(plan, config, args.inner,
                   options_on(plan, args.step.batch * world.size(), args.step.sequence), device);
  autograd::reset_peak_memory();
  const MeshBytes before = sent_by(strategy);
  std::vector<double> seconds, exposed;
  for (int i = 0; i < args.step.steps; ++i) {
    world.barrier();  // the ranks begin together
    const double communicated = strategy.communication_seconds();
    const auto start = Clock::now();
    step();
    seconds.push_back(over_ranks(seconds_since(start), ReduceOp::max, world));
    exposed.push_back(
        over_ranks(strategy.communication_seconds() - communicated, ReduceOp::max, world));
  }
  figures.step_seconds = median(seconds);
  figures.exposed_seconds = median(exposed);
  const MeshBytes after = sent_by(strategy);
  const auto of_a_step = [&](double bytes) {
    return over_ranks(bytes / args.step.steps, ReduceOp::avg, world);
  };
  figures.bytes = {of_a_step(after.tp - before.tp), of_a_step(after.dp - before.dp),
                   of_a_step(after.pp - before.pp), memory_over_ranks(plan, world)};
  loss = strategy.average(loss);
  return figures;
}

// Of the step that measure() takes.
planning::Plan simulated_plan(const Arguments& args, const MeshPlan& mesh, int ranks) {
  planning::Plan plan{.mesh = planning::parse_mesh(mesh.shape.text()),
                      .sequence = args.step.sequence,
                      .sequence_parallel = mesh.sequence_parallel,
                      .types = {.parameters = 4, .gradients = 4, .activations = 4}};
  if (args.inner.starts_with("zero")) plan.zero = args.inner.back() - '0';
  plan.micro_batches = std::max(1, mesh.schedule.micro_batches);
  plan.micro_batch = args.step.batch * ranks / mesh.data_ranks() / plan.micro_batches;
  if (!mesh.schedule_name.empty() && !mesh.schedule_name.starts_with("csv:"))
    plan.schedule = planning::schedule_named(mesh.schedule_name);
  if (plan.schedule == planning::Schedule::interleaved)
    plan.chunks = mesh.schedule.stages() / mesh.schedule.ranks();
  return plan;
}

// Measures a step and, just before and after it, the rates from which it is simulated.
Prediction predict(const Arguments& args, const MeshPlan& mesh, ProcessGroup& world,
                   const std::function<double()>& measure_step) {
  const planning::Model model = planning::model_from(args.step.config(), args.step.model);
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

void bench_as_rank(const Arguments& args, ProcessGroup& world, int ranks_here) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  begin_computing(args.threads.value_or(std::max(1, cores / ranks_here)));
  begin_on_device(args.device, std::span(&world, 1));
  std::vector<MeshFigures> all;
  std::vector<Prediction> predictions;
  double first_loss = 0;
  const Meshes meshes = meshes_of(args, world.size());
  for (const MeshPlan& plan : meshes.plans) {
    double loss = 0;
    const auto measure_step = [&] {
      all.push_back(measure(args, plan, world, loss));
      return all.back().step_seconds;
    };
    if (args.predict)
      predictions.push_back(predict(args, plan, world, measure_step));
    else
      measure_step();
    if (all.size() == 1) first_loss = loss;
    require(std::abs(loss - first_loss) <= 1e-3 * std::abs(first_loss),
            "{} has a loss of {}, but {} has {}: one of them trains wrongly", plan.shape.text(),
            loss, all.front().plan.shape.text(), first_loss);
  }
  if (world.rank() != 0) return;
  const MeshBenchTitle title{args.step.model,
                             world.backend_name(),
                             args.inner,
                             transformer::parameter_count(args.step.config()),
                             args.step.batch * world.size(),
                             args.step.sequence,
                             world.size(),
                             autograd::threads(),
                             args.device.name};
  std::FILE* const out = file_beside(args.step.json);
  fmt::print(out, "{}", mesh_table(title, all, meshes.left_out));
  if (args.predict) fmt::print(out, "{}", prediction_table(predictions));
  std::fflush(out);
  if (args.step.json.empty()) return;
  Json json = to_json(title, all);
  for (std::size_t i = 0; i < predictions.size(); ++i)
    json[i].update(prediction_json(predictions[i]));
  write_json_file(args.step.json, json);
}

void check_memory(const Arguments& args, int ranks, int ranks_here) {
  const autograd::Device device = device_of(args);
  // On a GPU each rank checks its own memory, not the launcher.
  if (device == autograd::Device::cuda && !environment("RANK")) return;
  for (const MeshPlan& plan : meshes_of(args, ranks).plans) {
    auto held = held_by(args.inner, plan.data_ranks(), ddp::Bucketed::default_bucket_mb);
    held.device = device;
    require_memory(
        memory_on_largest_rank(plan, args.step.config(),
                               options_on(plan, args.step.batch * ranks, args.step.sequence),
                               autograd::DType::fp32, held),
        ranks_here, args.memory_limit_gb, "choose a smaller model or --batch, or fewer ranks",
        device);
  }
}

}  // namespace

void add_bench_mesh_command(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "mesh", "Measure time, bytes along each axis and memory of every mesh of n ranks");
  const auto args = std::make_shared<Arguments>();
  args->step.steps = 5;
  args->step.add_to(*command);
  add_ranks_option(*command, args->ranks);
  add_backend_option(*command, args->ranks);
  add_link_option(*command);
  add_device_option(*command, args->device);
  add_device_backend_option(*command, args->device);
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
  command->add_option("--threads", args->threads, "Threads of each rank [cores divided by ranks]")
      ->type_name("N")
      ->check(at_least_one("thread"));
  command->add_flag("--predict", args->predict,
                    "Also simulate each mesh with rates measured here: predicted beside measured");
  add_memory_limit(*command, args->memory_limit_gb);
  command->footer(more);
  command->callback([args] {
    require_processes_for(args->device, {args->ranks.backend}, args->ranks.wanted());
    if (args->predict && args->device.name != "cpu")
      throw UsageError("--predict measures the rates of the CPU: leave out --device");
    run_on_ranks(
        args->ranks,
        [&](ProcessGroup& world, int ranks_here) {
          bench_as_rank(*args, world, ranks_here);
          world.finish();
        },
        [&](int ranks, int ranks_here) { check_memory(*args, ranks, ranks_here); });
  });
}

}  // namespace ringside::cli
