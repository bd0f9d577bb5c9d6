// `ringside bench ddp`: measures the communication of each data-parallel strategy, beside the same
// step without communication.
#include <algorithm>
#include <map>
#include <span>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/profile.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "bench/commands/step_arguments.hpp"
#include "bench/training/ddp_report.hpp"
#include "bench/training/step_table.hpp"
#include "cli/options/command.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/median.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/python_svg.hpp"
#include "cli/pictures/terminal.hpp"
#include "collectives/work.hpp"
#include "ddp/bucket_queue.hpp"
#include "ddp/bucket_sizes/bucket_model.hpp"
#include "ddp/buckets.hpp"
#include "ddp/gradient_hooks.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"
#include "training/trace/trace_file.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using collectives::ReduceOp;

struct DdpArguments : StepOptions {
  std::vector<std::string> strategies{"naive", "flat", "overlap", "bucketed"};
  std::string svg, report;
  std::vector<double> buckets;  // empty: chosen for the model
  bool plan_only = false;
};

constexpr std::size_t sizes_measured = 4;  // of those that are chosen

// The step without communication is first; it is the same for all backends.
std::vector<StepContender> contenders_of(const DdpArguments& args,
                                         const std::vector<double>& buckets, int ranks) {
  auto contenders = strategies_of(args, args.strategies, buckets, ranks);
  contenders.insert(contenders.begin(), {"none", args.plan(ranks, "single")});
  return contenders;
}

// Medians over a few backwards of one rank, without communication; all ranks of `world` compute at
// the same time. On a device this waits for each gradient, so backward takes longer than in a step.
BackwardTimes time_backward(const transformer::Model& model, const training::Plan& plan,
                            ProcessGroup& world) {
  constexpr int samples = 5;
  std::map<std::string, std::vector<double>> ready;
  std::vector<double> backward;
  Clock::time_point began;
  ddp::GradientHooks hooks;
  const auto parameters = ddp::trained_parameters(model);
  for (const auto& [name, tensor] : parameters)
    hooks.add(tensor, [&, &times = ready[name]](const autograd::Tensor&) {
      synchronise(plan.device);
      times.push_back(seconds_since(began));
    });
  const auto batch = random_batch(plan, {0, plan.options.batch / world.size()});
  const autograd::Shape shape{batch.sequences, batch.length};
  for (int sample = 0; sample < samples; ++sample) {
    for (const auto& parameter : parameters) parameter.tensor.zero_grad();
    world.barrier();
    const autograd::Tensor loss = model.loss(autograd::Tensor::from(batch.input, shape),
                                             autograd::Tensor::from(batch.target, shape));
    synchronise(plan.device);
    began = Clock::now();
    autograd::backward(loss);
    synchronise(plan.device);
    backward.push_back(seconds_since(began));
  }
  BackwardTimes times{.ready = {}, .seconds = median(backward)};
  for (const auto& [name, seconds] : ready) times.ready[name] = median(seconds);
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
  AllReduces result(tensors.size());
  for (int i = 0; i <= samples * most_rounds; ++i) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      group.barrier();
      const auto start = Clock::now();
      // As the strategies do.
      ddp::all_reduce_mean_async(tensors[t], group, "of the bench").wait();
      if (i > 0) seconds[t].push_back(seconds_since(start));
    }
    if (i == 0 || i % samples != 0) continue;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      result[t] = {static_cast<double>(tensors[t].elements()) * element_bytes, median(seconds[t])};
      group.all_reduce(std::span(&result[t].second, 1), ReduceOp::max);
    }
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
std::vector<BucketForecast> forecasts(const training::Plan& plan, std::span<ProcessGroup> groups,
                                      double gradient_bytes) {
  const transformer::Model model(plan.config, plan.dtype, plan.device);
  if (groups[0].rank() == 0) show_progress("measuring backward alone, and all-reduces");
  const BackwardTimes times = time_backward(model, plan, groups[0]);
  std::vector<BucketForecast> forecasts;
  for (ProcessGroup& group : groups)
    forecasts.push_back({bucket_sizes(model, times), times.seconds,
                         time_all_reduces(group, gradient_bytes, plan.dtype, plan.device)});
  return forecasts;
}

// Traces some steps of each contender. Every rank must call it; rank 0 gets the traces of all.
std::vector<RankTrace> trace_steps(StepBench& bench, const std::vector<StepRow>& rows,
                                   ProcessGroup& group) {
  constexpr int tries = 5;
  Trace trace;
  for (std::size_t c = 0; c < rows.size(); ++c)
    for (int i = 1; i <= tries; ++i) {
      const std::string phase = fmt::format("step {} of {}", i, rows[c].text());
      if (group.rank() == 0) show_progress("tracing " + phase);
      group.barrier();
      const Trace::On on(trace);
      const autograd::Profile profile;
      const TracedPhase whole(phase.c_str());
      bench.step(c);
    }
  group.barrier();
  if (group.rank() == 0) show_progress("");
  return training::gather_traces(trace, group);
}

void bench_as_rank(const DdpArguments& args, std::span<ProcessGroup> groups) {
  const training::Plan plan = args.plan(groups[0].size(), "single");
  const double gradient_bytes =
      static_cast<double>(size_of(plan.dtype)) * static_cast<double>(parameter_count(plan.config));
  const auto forecast = forecasts(plan, groups, gradient_bytes);
  std::vector<double> buckets = args.buckets;
  if (buckets.empty()) {
    buckets = forecast[0].sizes_to_measure(sizes_measured);
    groups[0].broadcast(std::span(buckets), 0);
  }
  StepBench bench(groups, contenders_of(args, buckets, groups[0].size()));
  const std::vector<StepRow> rows = bench.measure(args.steps);
  std::vector<RankTrace> traces;
  if (!args.report.empty()) traces = trace_steps(bench, rows, groups[0]);
  if (groups[0].rank() != 0) return;
  std::vector<DdpFigures> figures;
  std::vector<CommandResult> results;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    figures.push_back({describe_run(args, &groups[g]), args.steps, gradient_bytes,
                       rows_of_group(rows, g), forecast[g]});
    for (StepRow& row : figures[g].rows)
      if (row.bucket_mb) {
        row.by_formula =
            forecast[g].model.exposed_seconds(gradient_bytes, static_cast<double>(row.calls));
        row.followed = forecast[g].exposed(forecast[g].size_of(*row.bucket_mb));
      }
    results.push_back(result_of(figures[g]));
  }
  write_results(results, args.json);
  if (!args.svg.empty())
    write_svg_file(args.svg, picture_of(figures[0].run.title, {bucket_chart(figures[0])}),
                   "the drawing");
  if (!args.report.empty())
    write_report(args.report, ddp_report(figures[0], traces), file_beside(args.json));
}

// Which parameter lies in which bucket of at most `mb`, in the order in which they are sent. The
// tensors have shapes, and memory that nobody touches.
CommandResult bucket_plan(const DdpArguments& args, double mb) {
  const training::Plan plan = args.plan(1, "single");
  const transformer::ParameterTable table(plan.config);
  std::vector<autograd::NamedTensor> parameters;
  for (const transformer::ParameterEntry& entry : table.entries())
    parameters.push_back({entry.name, autograd::Tensor::empty(entry.shape, plan.dtype)});
  const std::vector<ddp::Bucket> buckets = ddp::plan_buckets_in_mb(parameters, mb);
  const auto bytes = [&](std::int64_t elements) {
    return elements * static_cast<std::int64_t>(size_of(plan.dtype));
  };
  Table rows{{number("bucket", "bucket"), number("its bytes", "bucket_bytes"),
              words("parameter", "parameter"), only_in_json("begin_bytes"),
              number("bytes", "bytes")}};
  std::int64_t all = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    all += buckets[b].elements;
    for (const auto& [parameter, begin] : buckets[b].entries)
      rows.rows.push_back({b, bytes(buckets[b].elements), parameter.name, bytes(begin),
                           bytes(parameter.tensor.elements())});
  }
  return {
      fmt::format("{}: {} bytes of gradients in {}\n{} of at most {:g} MB, the first of at most "
                  "{:g} MB\n{}",
                  args.model, bytes(all), args.dtype,
                  counted(static_cast<std::int64_t>(buckets.size()), "bucket"), mb,
                  std::min(mb, ddp::first_bucket_mb), rows.text()),
      rows.json({{"model", args.model}, {"bucket_mb", mb}})};
}

void print_plan(const DdpArguments& args) {
  std::vector<CommandResult> results;
  for (const double mb :
       args.buckets.empty() ? std::vector{ddp::BucketQueue::default_bucket_mb} : args.buckets)
    results.push_back(bucket_plan(args, mb));
  write_results(results, args.json);
}

void bench_ddp(const DdpArguments& args) {
  if (args.plan_only) return print_plan(args);
  refuse_if(args.backends.size() > 1 && !(args.svg.empty() && args.report.empty()),
            "--svg and --report show one backend: name one with --backend, or leave them out");
  const auto buckets = args.buckets.empty() ? std::vector<double>(sizes_measured, 1) : args.buckets;
  run_on_step_ranks(
      args, [&](int ranks) { return contenders_of(args, buckets, ranks); }, InMemory::together,
      "all strategies are in memory together: leave out some with --strategies or --buckets, or "
      "choose a smaller model",
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
  option.flag("--plan", args.plan_only,
              "Measure nothing: print which parameter lies in which bucket, in the order in which "
              "they are sent, for each size of --buckets [25]");
  option("--svg FILE", args.svg, "Draw exposed communication by bucket size to this file");
  option("--report FILE", args.report, "Write an HTML page with all figures to this file");
}

}  // namespace ringside::cli
