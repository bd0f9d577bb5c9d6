// `ringside bench ddp`: measures the communication of each data-parallel strategy, beside the same
// step without communication.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/profile.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "bench/commands/step_arguments.hpp"
#include "bench/training/ddp_report.hpp"
#include "bench/training/strategies.hpp"
#include "cli/options/command.hpp"
#include "cli/pictures/median.hpp"
#include "collectives/trace/trace_file.hpp"
#include "collectives/work.hpp"
#include "ddp/bucket_sizes/bucket_model.hpp"
#include "ddp/gradient_hooks.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using collectives::ReduceOp;

struct DdpArguments : StepArguments {
  std::vector<std::string> strategies{"naive", "flat", "overlap", "bucketed"};
  std::string svg, report;
  std::vector<double> buckets;  // empty: chosen for the model
};

constexpr std::size_t sizes_measured = 4;  // of those that are chosen

// What to measure. The step without communication is first; it is the same for all backends.
std::vector<StrategyName> names_of(const DdpArguments& args, const std::vector<double>& buckets) {
  std::vector<StrategyName> names{{"none", {}, 0}};
  for (std::size_t backend = 0; backend < args.backends.size(); ++backend) {
    for (const auto& strategy : args.strategies) {
      if (strategy != "bucketed")
        names.push_back({strategy, {}, backend});
      else
        for (const double mb : buckets) names.push_back({strategy, mb, backend});
    }
  }
  return names;
}

// Medians over a few backwards of one rank, without communication; all ranks of `world` compute at
// the same time. On a device this waits for each gradient, so backward takes longer than in a step.
ddp::BackwardTimes time_backward(const transformer::Model& model, const transformer::Batch& batch,
                                 ProcessGroup& world) {
  constexpr int samples = 5;
  const auto parameters = ddp::trained_parameters(model);
  const autograd::Device device = parameters[0].tensor.device();
  std::vector<std::vector<double>> ready(parameters.size());
  std::vector<double> backward;
  Clock::time_point began;
  ddp::GradientHooks hooks;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    hooks.add(parameters[i].tensor, [&, i](const autograd::Tensor&) {
      synchronise(device);
      ready[i].push_back(seconds_since(began));
    });
  const autograd::Shape shape{batch.sequences, batch.length};
  for (int sample = 0; sample < samples; ++sample) {
    for (const auto& parameter : parameters) parameter.tensor.zero_grad();
    world.barrier();
    const autograd::Tensor loss = model.loss(autograd::Tensor::from(batch.input, shape),
                                             autograd::Tensor::from(batch.target, shape));
    synchronise(device);
    began = Clock::now();
    autograd::backward(loss);
    synchronise(device);
    backward.push_back(seconds_since(began));
  }
  ddp::BackwardTimes times;
  times.seconds = median(backward);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    times.ready[parameters[i].name] = median(ready[i]);
  return times;
}

using AllReduces = std::vector<std::pair<double, double>>;  // bytes and seconds

// All-reduces from the size of a small parameter to all gradients: the slowest rank's median. The
// sizes take turns: a moment in which the machine is busy with something else lasts longer than
// many small calls, and must not slow only them. Where it did all the same, so that the bucket
// model finds no bandwidth, there are more samples.
AllReduces time_all_reduces(ProcessGroup& group, double gradient_bytes, autograd::DType dtype,
                            autograd::Device device) {
  constexpr int samples = 7, most_rounds = 20;
  const auto element_bytes = static_cast<double>(size_of(dtype));
  std::vector<autograd::Tensor> tensors;
  for (const double bytes : {2e3, 16e3, 128e3, 1e6, 4e6, 16e6, 64e6}) {
    if (bytes > gradient_bytes && tensors.size() >= 2) break;
    tensors.push_back(autograd::Tensor::full({static_cast<std::int64_t>(bytes / element_bytes)}, 1,
                                             dtype, device));
  }
  std::vector<std::vector<double>> seconds(tensors.size());
  AllReduces result;
  for (int round = 0; round < most_rounds; ++round) {
    for (int i = 0; i <= samples; ++i)
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        group.barrier();
        const auto start = Clock::now();
        // As the strategies do.
        ddp::all_reduce_mean_async(tensors[t], group, "of the bench").wait();
        if (i > 0) seconds[t].push_back(seconds_since(start));
      }
    result.clear();
    for (std::size_t t = 0; t < tensors.size(); ++t)
      result.emplace_back(static_cast<double>(tensors[t].elements()) * element_bytes,
                          over_ranks(median(seconds[t]), ReduceOp::max, group));
    try {
      ddp::fit_bucket_model(result);
      break;
    } catch (const Error&) {  // which the caller sees, if it stays so
    }
  }
  return result;
}

// Measures backward without communication, and all-reduces over each group. Every rank must call
// it, before the strategies are made.
std::vector<ddp::BucketForecast> forecasts(const DdpArguments& args, std::span<ProcessGroup> groups,
                                           autograd::DType dtype, autograd::Device device) {
  const transformer::Model model(args.config(), dtype, device);
  const ddp::BackwardTimes times =
      time_backward(model, args.sequences(groups[0].rank() * args.batch, args.batch), groups[0]);
  const double bytes =
      static_cast<double>(size_of(dtype)) * static_cast<double>(parameter_count(args.config()));
  std::vector<ddp::BucketForecast> forecasts;
  for (ProcessGroup& group : groups)
    forecasts.push_back({ddp::bucket_sizes(model, times), times.seconds,
                         time_all_reduces(group, bytes, dtype, device)});
  return forecasts;
}

// Traces some steps of each strategy, and chooses the one whose time is nearest to the median in
// the table. Every rank must call it; rank 0 gets the traces of all.
TracedStrategies trace_typical_steps(StepBench& bench, const std::vector<StrategyRow>& rows,
                                     ProcessGroup& group) {
  constexpr int tries = 5;
  Trace trace;
  TracedStrategies traced;
  for (std::size_t c = 0; c < rows.size(); ++c) {
    double nearest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < tries; ++i) {
      group.barrier();
      const std::string phase = fmt::format("step {} of {}", i, rows[c].text());
      double seconds = 0;
      {
        const Trace::On on(trace);
        const autograd::Profile profile;
        const TracedPhase whole(phase.c_str());
        seconds = bench.step(c);
      }
      const double slowest = over_ranks(seconds, ReduceOp::max, group);
      const double distance = std::abs(slowest - rows[c].step_seconds);
      if (distance < nearest) traced.phases[rows[c].text()] = phase;
      nearest = std::min(nearest, distance);
    }
  }
  group.barrier();
  traced.ranks = gather_traces(trace, group);
  return traced;
}

void write_pictures(const DdpArguments& args, const DdpFigures& figures,
                    const TracedStrategies& traced) {
  if (!args.svg.empty()) {
    const std::string drawing = svg_file(figures.run.title(), {bucket_chart(figures)});
    write_text_file(args.svg, drawing, "the drawing");
  }
  if (!args.report.empty())
    write_report(args.report, ddp_report(figures, traced), file_beside(args.json));
}

void bench_as_rank(const DdpArguments& args, std::span<ProcessGroup> groups) {
  const autograd::DType dtype = autograd::dtype_named(args.dtype);
  const autograd::Device device = device_from(args.device, dtype);
  const std::vector<ddp::BucketForecast> forecast = forecasts(args, groups, dtype, device);
  std::vector<double> buckets = args.buckets;
  if (buckets.empty()) {
    buckets = forecast[0].sizes_to_measure(sizes_measured);
    groups[0].broadcast(std::span(buckets), 0);
  }
  const std::vector<StrategyName> names = names_of(args, buckets);
  StepBench bench(groups[0], args.config(), dtype, device);
  add_strategies(bench, args, groups, names);
  const std::vector<StrategyRow> rows = measure_strategies(bench, args.steps, names);
  TracedStrategies traced;
  if (!args.report.empty()) traced = trace_typical_steps(bench, rows, groups[0]);
  if (groups[0].rank() != 0) return;
  std::vector<DdpFigures> figures;
  std::vector<BenchResult> results;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    figures.push_back({describe_run(args, args.device.name, &groups[g]), {}, forecast[g]});
    for (const StrategyRow& row : rows)
      if (row.strategy == "none" || row.group == g) figures[g].rows.push_back(row);
    results.push_back(result_of(figures[g]));
  }
  write_results(results, args.json);
  write_pictures(args, figures[0], traced);
}

void bench_ddp(const DdpArguments& args) {
  refuse_if(args.backends.size() > 1 && !(args.svg.empty() && args.report.empty()),
            "--svg and --report show one backend: name one with --backend, or leave them out");
  const auto memory = [&](int ranks, autograd::Device device) {
    const auto buckets =
        args.buckets.empty() ? std::vector<double>(sizes_measured, 1) : args.buckets;
    return std::vector{memory_of_strategies(args, names_of(args, buckets), ranks, device)};
  };
  run_on_step_ranks(args, memory,
                    "all strategies are in memory together: leave out some with --strategies or "
                    "--buckets, or choose a smaller model",
                    [&](std::span<ProcessGroup> groups) { bench_as_rank(args, groups); });
}

}  // namespace

void add_bench_ddp_command(CLI::App& bench) {
  const auto [option, args] = add_command(
      bench, "ddp",
      "Measure data-parallel strategies: the cost of communication, and how much of it is hidden",
      bench_ddp);
  add_strategies_options(option, args, args.strategies, true);
  add_dtype_option(option, args.dtype);
  option("--buckets MB,...", args.buckets,
         "Bucket sizes of bucketed, in 10^6 bytes [four for the size of the model, the predicted "
         "best among them]",
         positive());
  option("--svg FILE", args.svg, "Draw exposed communication by bucket size to this file");
  option("--report FILE", args.report, "Write an HTML page with all figures to this file");
}

}  // namespace ringside::cli
