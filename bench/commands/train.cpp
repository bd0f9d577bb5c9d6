// `ringside bench train`: measures the ops of a training step, beside the time of its matrix
// products alone.
#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <thread>

#include "autograd/kernels/products/matrix_product.hpp"
#include "autograd/kernels/profile.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/tensor/storage.hpp"
#include "base/clock.hpp"
#include "base/memory.hpp"
#include "base/warn.hpp"
#include "bench/commands/step_arguments.hpp"
#include "bench/operands.hpp"
#include "bench/training/step_bench.hpp"
#include "bench/training/train_report.hpp"
#include "cli/options/command.hpp"
#include "cli/pictures/median.hpp"
#include "cli/pictures/python_svg.hpp"
#include "training/product_calibration.hpp"

namespace ringside::cli {
namespace {

using autograd::Device;
using autograd::DType;
using autograd::Profile;
using autograd::Tensor;

struct TrainArguments : StepOptions {
  TrainArguments() { batch = 4, ranks.otherwise = 1; }
  std::string svg;
  std::vector<int> thread_counts;
};

// Measures the step of one contender, and in turn with it its matrix products alone.
class TrainBench {
 public:
  TrainBench(const TrainArguments& args, std::span<collectives::ProcessGroup> groups)
      : args_(args), plan_(args.plan(1, "single")), bench_(groups, {{"single", plan_}}) {}

  TrainFigures measure(int threads) {
    training::begin_computing(threads);
    TrainFigures figures{.run = describe_run(args_),
                         .threads = threads,
                         .tokens = static_cast<double>(args_.batch * args_.sequence),
                         .libraries = training::matrix_libraries(),
                         .ops = {}};
    autograd::release_cached_memory();  // of the measurement with another number of threads
    reset_peak_resident_memory();
    bench_.warm_up();
    figures.tensor_bytes = bench_.memory(0).peak.back();
    figures.resident_bytes = static_cast<double>(peak_resident_memory().value_or(0));
    if (products_.empty()) {
      autograd::set_threads(1);  // the profile sees the products of this thread only
      products_ = timed_step().products;
      autograd::set_threads(threads);
    }
    for (const auto& product : products_) figures.flops += product.flops();

    std::map<std::string, std::vector<double>> forward, backward;
    std::vector<double> seconds, gemm, alone;
    for (int i = 0; i < args_.steps; ++i) {
      const ProfiledStep step = timed_step();
      seconds.push_back(step.seconds), gemm.push_back(step.gemm);
      for (const auto& op : step.ops)
        forward[op.name].push_back(op.forward), backward[op.name].push_back(op.backward);
      if (i == 0) figures.ops = step.ops;
      alone.push_back(products_alone());
    }
    for (auto& op : figures.ops)
      op.forward = median(forward[op.name]), op.backward = median(backward[op.name]);
    figures.step_seconds = median(seconds), figures.alone_seconds = median(alone);
    // The profile sees the products of this thread only.
    figures.gemm_seconds = threads == 1 && plan_.device != Device::cuda ? median(gemm) : 0;
    return figures;
  }

 private:
  struct ProfiledStep {
    double seconds = 0, gemm = 0;
    std::vector<autograd::OpTime> ops;
    std::vector<autograd::Product> products;
  };

  // On a device the ops are timed in a second step: marks between all of them make a step longer.
  ProfiledStep timed_step() {
    const double unmarked = plan_.device == Device::cpu ? 0 : bench_.step(0);
    Profile profile(plan_.device);
    const double seconds = bench_.step(0, [](std::string_view part) {
      if (part == "clip") Profile::note_forward("gradient norm");
      if (part == "optimizer") Profile::note_forward("adamw");
    });
    return {plan_.device == Device::cpu ? seconds : unmarked, profile.gemm_seconds(), profile.ops(),
            profile.products()};
  }

  // The products of a step with nothing in between; on a device without those of attention. On the
  // CPU each short product runs on one thread, as attention's do.
  double products_alone() {
    const bool on_cpu = plan_.device == Device::cpu;
    double seconds = 0;
    for (const auto& p : products_) {
      const DType dtype = p.bf16 ? DType::bf16 : on_cpu ? DType::fp32 : plan_.dtype;
      RandomOperands& operands = operands_.try_emplace(dtype, dtype, plan_.device).first->second;
      const Tensor a = operands.make({p.m * p.k}), b = operands.make({p.k * p.n});
      const bool are_short = on_cpu && p.flops() / p.calls < 4e6;
      std::vector<Tensor> results;  // [thread]
      for (int i = 0; i < (are_short ? autograd::threads() : 1); ++i)
        results.push_back(
            Tensor::zeros({p.m * p.n}, on_cpu ? DType::fp32 : plan_.dtype, plan_.device));
      const auto multiply = [&](int thread, std::int64_t begin, std::int64_t end) {
        for (auto i = begin; i < end; ++i)
          autograd::multiply({p.a, p.b, p.m, p.n, p.k}, a, b,
                             results[static_cast<std::size_t>(thread)]);
      };
      synchronise(plan_.device);
      const auto start = Clock::now();
      are_short ? autograd::parallel_for_pieces(p.calls, 1, multiply) : multiply(0, 0, p.calls);
      synchronise(plan_.device);
      seconds += seconds_since(start);
    }
    return seconds;
  }

  const TrainArguments& args_;
  training::Plan plan_;
  StepBench bench_;
  std::vector<autograd::Product> products_;
  std::map<DType, RandomOperands> operands_;
};

void bench_as_rank(const TrainArguments& args, std::span<collectives::ProcessGroup> groups) {
  if (const std::string warning = slow_kernel_warning(training::matrix_libraries());
      !warning.empty() && args.device.name != "cuda")  // there cuBLAS multiplies
    warn("{}", warning);
  std::vector<int> threads = args.thread_counts;
  if (threads.empty()) threads = {1};
  if (args.thread_counts.empty() && args.device.name == "cpu" &&
      std::thread::hardware_concurrency() >= 2)
    threads.push_back(2);
  TrainBench bench(args, groups);
  std::vector<TrainFigures> all;
  std::vector<CommandResult> results;
  for (const int n : threads) {
    all.push_back(bench.measure(n));
    results.push_back(result_of(all.back()));
  }
  write_results(results, args.json);
  if (!args.svg.empty()) write_svg_file(args.svg, train_plot(all), "the drawing");
}

void bench_train(const TrainArguments& args) {
  run_on_step_ranks(
      args,
      [&](int) {
        return std::vector<StepContender>{{"single", args.plan(1, "single")}};
      },
      InMemory::together, "choose a smaller model or --batch",
      [&](std::span<collectives::ProcessGroup> groups) { bench_as_rank(args, groups); });
}

}  // namespace

void add_bench_train_command(CLI::App& bench) {
  const auto [option, args] = add_command(
      bench, "train", "Measure a training step on one rank: the time of each op", bench_train);
  add_step_options(option, args);
  add_dtype_option(option, args.dtype);
  option("--threads N,...", args.thread_counts,
         "Numbers of threads, measured in this order [1, and 2 if there are two cores]",
         at_least_one("thread"));
  add_device_option(option, args.device);
  add_memory_limit(option, args.memory_limit_gb);
  option("--svg FILE", args.svg, "Draw the times to this file");
}

}  // namespace ringside::cli
