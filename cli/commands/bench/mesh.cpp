// `ringside bench mesh`: every mesh of n ranks side by side: the time of a step, the bytes along
// each axis and the memory of a rank, beside the formulas.
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/tensor/storage.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "cli/bench/median.hpp"
#include "cli/bench/training/mesh_report.hpp"
#include "cli/bench/training/step.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/one_of.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/mesh/mesh_strategy.hpp"
#include "cli/training/parallel_strategies.hpp"
#include "collectives/transport/transport.hpp"
#include "ddp/bucketed.hpp"
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
dp. With p = dp and t = tp ranks, T tokens of a data rank, L layers of width d,
numbers of e bytes, and n bytes of parameters on a rank, a rank sends in a step
  along tp  8 L (t-1)/t T d e   two sums of activations in forward and two in
                                backward for each layer
            4 (t-1)/t T d e     embedding, and the input of the head
            6 (t-1)/t T e       cross-entropy: three numbers a token
  along dp  2 (p-1)/p n         gradients; see ringside bench zero
With --sequence-parallel the sums are divided differently: the same bytes, and
the gradients of the norms once.

The meshes run one after the other. Each has a warm-up step.

Examples:
  ringside bench mesh -n 4 --model lab
  ringside bench mesh -n 8 --model tiny --parallel zero1 --json mesh.json)";

struct Arguments {
  BenchStepOptions step;
  RanksOption ranks{.count = {}, .otherwise = 4};
  std::string inner = "bucketed";
  bool sequence_parallel = false;
  std::optional<int> threads;
  std::optional<double> memory_limit_gb;
};

// Every mesh of so many ranks that can divide the model, from data parallel to tensor parallel.
std::vector<MeshPlan> meshes_of(const Arguments& args, int ranks) {
  std::vector<MeshPlan> plans;
  transformer::TrainerOptions options;
  options.sequence = args.step.sequence;
  for (int t = 1; t <= ranks; ++t) {
    if (ranks % t != 0) continue;
    const std::string text = t == 1       ? fmt::format("dp={}", ranks)
                             : t == ranks ? fmt::format("tp={}", t)
                                          : fmt::format("dp={},tp={}", ranks / t, t);
    const MeshPlan plan{parallel::MeshShape(text), args.sequence_parallel && t > 1};
    try {
      require_divisible(plan, args.step.config(), options, args.inner);
    } catch (const Error&) {
      continue;  // the model has too few heads for so many ranks
    }
    plans.push_back(plan);
  }
  return plans;
}

Batch batch_of(const Arguments& args, int ranks, int data_rank, int data_ranks) {
  const std::int64_t each = args.step.batch * ranks / data_ranks;
  Batch batch;
  batch.sequences = each;
  batch.length = args.step.sequence;
  // The sequences of the whole batch do not depend on the mesh.
  for (std::int64_t s = data_rank * each; s < (data_rank + 1) * each; ++s) {
    const auto row = [&](std::uint64_t stream) {
      BenchStepOptions one = args.step;
      one.batch = 1;
      const auto tokens = one.tokens(2 * static_cast<std::uint64_t>(s) + stream);
      const auto values = tokens.values<std::int32_t>();
      return std::vector<std::int32_t>(values.begin(), values.end());
    };
    const auto input = row(0), target = row(1);
    batch.input.insert(batch.input.end(), input.begin(), input.end());
    batch.target.insert(batch.target.end(), target.begin(), target.end());
  }
  return batch;
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

// One mesh. `loss` is that of the last step, the same on every mesh.
MeshFigures measure(const Arguments& args, const MeshPlan& plan, ProcessGroup& world,
                    double& loss) {
  const auto config = args.step.config();
  MeshStrategy strategy(world, plan, config, args.inner, ddp::Bucketed::default_bucket_mb);
  Model model(config, autograd::DType::fp32, autograd::Device::cpu, strategy.part(),
              strategy.tensor_division());
  strategy.prepare(model);
  const auto optimizer = strategy.make_optimizer(
      {{.parameters = model.named_parameters(), .learning_rate = 1e-4, .weight_decay = 0.1}},
      [](std::vector<autograd::ParameterGroup> groups) {
        return std::make_unique<autograd::AdamW>(std::move(groups));
      });
  const Batch batch = batch_of(args, world.size(), strategy.data_rank(), strategy.data_ranks());

  // The step that the trainer takes.
  const auto step = [&] {
    strategy.clear_gradients(*optimizer);
    loss = strategy.run_batches(model, std::span(&batch, 1));
    strategy.finish_gradients();
    strategy.clip_gradients(*optimizer, 1);
    strategy.step(*optimizer);
  };
  const auto sent = [&](Axis axis) {
    return static_cast<double>(strategy.mesh().group(axis).traffic().payload_bytes_sent);
  };
  step();

  MeshFigures figures{plan, 0, 0, {}, {}, 0};
  figures.formula =
      mesh_formula(plan, config, args.inner, args.step.batch * world.size(), args.step.sequence);
  autograd::reset_peak_memory();
  const double tp = sent(Axis::tp), dp = sent(Axis::dp);
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
  figures.bytes = {over_ranks((sent(Axis::tp) - tp) / args.step.steps, ReduceOp::avg, world),
                   over_ranks((sent(Axis::dp) - dp) / args.step.steps, ReduceOp::avg, world),
                   over_ranks(held_now(), ReduceOp::avg, world)};
  figures.activations =
      over_ranks(static_cast<double>(autograd::memory_use(MemoryKind::activations).peak),
                 ReduceOp::max, world);
  loss = strategy.average(loss);
  return figures;
}

void bench_as_rank(const Arguments& args, ProcessGroup& world, int ranks_here) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  autograd::set_threads(args.threads.value_or(std::max(1, cores / ranks_here)));
  std::vector<MeshFigures> all;
  double first_loss = 0;
  for (const MeshPlan& plan : meshes_of(args, world.size())) {
    double loss = 0;
    all.push_back(measure(args, plan, world, loss));
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
                             autograd::threads()};
  std::FILE* const out = file_beside(args.step.json);
  fmt::print(out, "{}", mesh_table(title, all));
  std::fflush(out);
  if (!args.step.json.empty()) write_json_file(args.step.json, to_json(title, all));
}

void check_memory(const Arguments& args, int ranks, int ranks_here) {
  transformer::TrainerOptions options;
  options.batch = args.step.batch * ranks;
  options.sequence = args.step.sequence;
  for (const MeshPlan& plan : meshes_of(args, ranks)) {
    const auto held = held_by(args.inner, plan.data_ranks(), ddp::Bucketed::default_bucket_mb);
    require_memory(transformer::memory_needed(args.step.config(), options, autograd::DType::fp32,
                                              plan.data_ranks(),
                                              held_by_rank(plan, args.step.config(), 0, held)),
                   ranks_here, args.memory_limit_gb,
                   "choose a smaller model or --batch, or fewer ranks");
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
  command->add_option("--parallel", args->inner, "The data-parallel strategy along dp")
      ->type_name("NAME")
      ->check(one_of({"bucketed", "zero1", "zero2", "zero3"}))
      ->capture_default_str();
  command->add_flag("--sequence-parallel", args->sequence_parallel,
                    "The tp ranks also divide the tokens of each sequence");
  command->add_option("--threads", args->threads, "Threads of each rank [cores divided by ranks]")
      ->type_name("N")
      ->check(at_least_one("thread"));
  add_memory_limit(*command, args->memory_limit_gb);
  command->footer(more);
  command->callback([args] {
    run_on_ranks(
        args->ranks,
        [&](ProcessGroup& world, int ranks_here) { bench_as_rank(*args, world, ranks_here); },
        [&](int ranks, int ranks_here) { check_memory(*args, ranks, ranks_here); });
  });
}

}  // namespace ringside::cli
